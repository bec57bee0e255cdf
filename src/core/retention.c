/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Saves segments that leave the ring, and gives up the oldest within the limits.
 *
 * The ring holds the end of the queue.  When senders need the memory of a segment that a
 * listener has not read yet, the segment is saved first, once for all listeners.  The saved
 * segments are one contiguous range that ends where the ring begins:
 *
 *		from ........ to == tail ........ dispatched ........ head
 *		  |   saved   |           the ring                     |
 *
 * If the range would exceed a limit, or a segment cannot be saved, the oldest is deleted, and
 * `lost` moves up: a listener below it has missed messages, is notified of that, and no longer
 * holds the queue back.
 *
 * [F1] Readers take no lock: a segment is saved completely before `to` covers it, and its
 * memory is recycled only after that.  So a reader that finds its bytes overwritten finds them
 * saved, unless they have been given up.
 *
 * A listener below `lost` may not miss anything: it may be about to move on, or may have no
 * message there.  But other processes have recycled past it meanwhile, perhaps while the
 * spiller was saving the segment.  So a segment counts as saved only if it was still in the
 * ring afterwards.
 *
 * Deleting a file takes long, so it is done later, mostly by other processes.  They delete by
 * name, so a name that is queued for deletion must never be used again: the file of a segment
 * that may be saved in a second attempt is not queued.  If saving fails because the disk is
 * full, files that were given up must be deleted before there is room: the spiller ensures
 * that, and tries again.
 *
 * [F2] A listener that no longer holds the queue back has been reported before: `lost` moves
 * up after the reports, and a process that recycles loads `lost` before the words.
 *
 * A session that resumes may ask for messages that were sent earlier.  So some data that no
 * listener needs is retained: it precedes the data that listeners need, and is deleted before
 * any of that is given up.  [F4] Data that no listener needs is recycled or deleted under the
 * border lock, after checking the words.  A session that begins to need older data holds that
 * lock while it checks that the data exists and changes its word.  So either the other process
 * sees the session's word, or the session sees that the data is gone.  Giving up data needs no
 * lock: a session that begins to need it meanwhile is below `lost` like any other laggard, and
 * is notified of that.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "retention.h"

#include "stop_point.h"

typedef struct Spiller
{
	HeraldRetention *retention;
	HeraldQueue  *queue;
	HeraldWakeup *wakeup;
	const HeraldRetentionLimits *limits;
	const HeraldRetentionCalls *calls;
} Spiller;

/* A range of whole segments. */
typedef struct Segments
{
	HeraldPosition from;
	HeraldPosition to;
} Segments;

static bool let_go(Spiller *spiller, uint64_t bytes, HeraldPosition *tail);
static HeraldPosition retained_from(const Spiller *spiller, HeraldPosition needed, uint64_t bytes);
static HeraldPosition oldest_kept(const Spiller *spiller);
static uint64_t bytes_between(const Spiller *spiller, HeraldPosition from, HeraldPosition to);
static bool keep_within_limit(Spiller *spiller, uint64_t bytes);
static uint64_t bytes_kept(const Spiller *spiller);
static HeraldRetentionResult save_needed(Spiller *spiller, HeraldPosition segment, bool *is_left);
static bool save_unneeded(Spiller *spiller, HeraldPosition segment);
static bool save(Spiller *spiller, HeraldPosition segment);
static bool recycle(Spiller *spiller, HeraldPosition segment);
static bool give_up_oldest(Spiller *spiller, HeraldOverrunReason reason);
static bool give_up_other(Spiller *spiller, HeraldPosition oldest);
static void give_up_below(Spiller *spiller, HeraldPosition position,
						  HeraldOverrunReason reason);
static Segments retire_unneeded(Spiller *spiller, HeraldPosition position);
static void delete_below(Spiller *spiller, HeraldPosition position);
static Segments retire_below(Spiller *spiller, HeraldPosition position);
static void remove_segments(Spiller *spiller, Segments retired);
static void remove_others(Spiller *spiller, HeraldPosition below);


/* Below `settled` no process writes any more, and all listeners concerned are marked. */
bool
herald_retention_can_move(HeraldQueue *queue)
{
	HeraldPosition segment = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	return herald_queue_is_short(queue) &&
		atomic_load_explicit(&queue->settled, memory_order_acquire) >= segment + queue->segment_size;
}

bool
herald_retention_may_have_room(HeraldQueue *queue)
{
	return !herald_queue_is_short(queue) || herald_retention_can_move(queue);
}

bool
herald_retention_recycle(HeraldQueue *queue, HeraldWakeup *wakeup)
{
	HeraldPosition needed;
	HeraldPosition next;
	bool		made_room;

	if (!herald_queue_lock_border(queue))
		return false;
	needed = herald_wakeup_needed(wakeup, queue);
	next = herald_queue_next_segment(queue, atomic_load_explicit(&queue->tail, memory_order_relaxed));
	made_room = herald_queue_recycle(queue, needed < next ? needed : next);
	herald_queue_unlock_border(queue);
	return made_room;
}

HeraldRetentionResult
herald_retention_move(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
					  const HeraldRetentionLimits *limits, const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, limits, calls};
	HeraldPosition segment;
	HeraldPosition next;
	bool		is_left = false;	/* an incomplete file is left */
	bool		made_room;

	/*
	 * The saved range must end at the tail before a segment is added: see retire_below().  So
	 * use the tail as of let_go(): if other processes recycle more, this segment is not saved.
	 */
	if (!let_go(&spiller, queue->segment_size, &segment))
		return HERALD_RETENTION_NO_ROOM;
	next = segment + queue->segment_size;
	if (!herald_retention_can_move(queue))
		return herald_queue_is_short(queue) ? HERALD_RETENTION_NO_ROOM : HERALD_RETENTION_ROOM;

	/* If the segment is saved already, an earlier attempt could not recycle it. */
	if (!herald_retention_has(retention, segment))
	{
		if (herald_wakeup_needed(wakeup, queue) < next && !keep_within_limit(&spiller, queue->segment_size))
			give_up_below(&spiller, next, HERALD_OVERRUN_LIMIT);
		if (herald_wakeup_needed(wakeup, queue) >= next)
			is_left = !save_unneeded(&spiller, segment);
		else if (save_needed(&spiller, segment, &is_left) == HERALD_RETENTION_AGAIN)
			return HERALD_RETENTION_AGAIN;
	}
	made_room = recycle(&spiller, segment);
	if (is_left && atomic_load_explicit(&queue->tail, memory_order_relaxed) != segment)
		calls->remove(segment);
	return made_room ? HERALD_RETENTION_ROOM : HERALD_RETENTION_NO_ROOM;
}

bool
herald_retention_leave_room(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
							uint64_t bytes, const HeraldRetentionLimits *limits,
							const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, limits, calls};

	(void) let_go(&spiller, bytes, NULL);
	return keep_within_limit(&spiller, bytes);
}

void
herald_retention_expire(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
						HeraldPosition position, const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, NULL, calls};
	HeraldPosition needed;
	Segments	retired;

	if (!herald_queue_lock_border(queue))
		return;
	needed = herald_wakeup_needed(wakeup, queue);
	retired = retire_unneeded(&spiller, position < needed ? position : needed);
	herald_queue_unlock_border(queue);
	remove_segments(&spiller, retired);
}

bool
herald_retention_give_up_oldest(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
								const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, NULL, calls};

	return give_up_oldest(&spiller, HERALD_OVERRUN_ERROR);
}

bool
herald_retention_give_up_oldest_other(HeraldRetention *retention, HeraldQueue *queue,
									  HeraldWakeup *wakeup, const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, NULL, calls};

	return give_up_other(&spiller, calls->others_oldest());
}

HeraldPosition
herald_retention_kept_from(HeraldRetention *retention, HeraldQueue *queue, uint64_t sets)
{
	/*
	 * [F5] The order of these loads matters.  `to` after the tail: a segment is saved before
	 * it leaves the ring, and an older `to` would not cover it.  `from` after `to`, since
	 * retire_below() stores `from` first: an older `from` could be taken for the start of a
	 * range that has begun since.  `lost` after `from`: `lost` moves up before segments are
	 * retired.
	 */
	HeraldPosition tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_acquire);
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_acquire);
	HeraldPosition lost = atomic_load_explicit(&queue->lost, memory_order_acquire);

	/* If the saved range ends before the tail, other processes have recycled more. */
	if (from > tail || to < tail)
		from = tail;
	if (from < lost)
		from = lost;
	for (int set = 0; sets != 0; sets >>= 1, set++)
	{
		HeraldPosition complete;

		if ((sets & 1) == 0)
			continue;
		complete = atomic_load_explicit(&retention->complete_from[set], memory_order_acquire);
		if (from < complete)
			from = complete;
	}
	return from;
}

HeraldHoldResult
herald_retention_hold(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
					  uint32_t slot, uint64_t sets, HeraldPosition position,
					  HeraldPosition *had_read)
{
	bool		is_there;

	/* [F4] A process that recycles or deletes checks the words under the same lock. */
	if (!herald_queue_lock_border(queue))
		return HERALD_HOLD_AGAIN;
	is_there = position >= herald_retention_kept_from(retention, queue, sets) &&
		herald_wakeup_hold(wakeup, queue, slot, position, had_read);
	herald_queue_unlock_border(queue);
	return is_there ? HERALD_HOLD_DONE : HERALD_HOLD_GONE;
}

bool
herald_retention_has(HeraldRetention *retention, HeraldPosition segment)
{
	/* [F1] acquire: pairs with save() and retire_below(). */
	return segment < atomic_load_explicit(&retention->to, memory_order_acquire) &&
		segment >= atomic_load_explicit(&retention->from, memory_order_acquire);
}

uint64_t
herald_retention_bytes(HeraldRetention *retention)
{
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_relaxed);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_relaxed);

	return to > from ? to - from : 0;
}

/*
 * Delete data that no listener needs, except for the latest that may be retained, so that
 * `bytes` more bytes fit.  *tail, if not NULL: the ring's tail after that.  False: another
 * process has the border lock.
 */
static bool
let_go(Spiller *spiller, uint64_t bytes, HeraldPosition *tail)
{
	Segments	retired;

	if (!herald_queue_lock_border(spiller->queue))
		return false;

	/*
	 * Files of transactions that rolled back belong to the very first position, and to no
	 * channel.
	 */
	remove_others(spiller, HERALD_ALIGN);
	retired = retire_unneeded(spiller,
							  retained_from(spiller, herald_wakeup_needed(spiller->wakeup, spiller->queue), bytes));
	if (tail != NULL)
		*tail = atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed);
	herald_queue_unlock_border(spiller->queue);
	remove_segments(spiller, retired);
	return true;
}

/*
 * The position from which unneeded data may be retained, leaving room for one more segment of
 * it.
 */
static HeraldPosition
retained_from(const Spiller *spiller, HeraldPosition needed, uint64_t bytes)
{
	const HeraldRetentionLimits *limits = spiller->limits;
	uint64_t	size = spiller->queue->segment_size;
	uint64_t	besides = bytes_kept(spiller) - bytes_between(spiller, 0, needed) + bytes;
	HeraldPosition position = oldest_kept(spiller);

	if (limits->retain_max < size || limits->bytes_max < besides)
		return needed;
	while (position < needed)
	{
		uint64_t	retained = bytes_between(spiller, position, needed);
		uint64_t	retain_max = limits->bytes_max - besides;

		if (retain_max > limits->retain_max - size)
			retain_max = limits->retain_max - size;
		if (retained <= retain_max)
			break;
		position = (position | (size - 1)) + 1;
	}
	return position < needed ? position : needed;
}

/* The oldest position that a saved segment or other file belongs to; UINT64_MAX: none. */
static HeraldPosition
oldest_kept(const Spiller *spiller)
{
	HeraldPosition oldest = UINT64_MAX;
	HeraldPosition other = UINT64_MAX;

	if (herald_retention_bytes(spiller->retention) > 0)
		oldest = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	if (spiller->calls->others_oldest)
		other = spiller->calls->others_oldest();
	return other < oldest ? other : oldest;
}

/*
 * Bytes of saved segments and other files that belong to a range; only whole segments count.
 */
static uint64_t
bytes_between(const Spiller *spiller, HeraldPosition from, HeraldPosition to)
{
	uint64_t	size = spiller->queue->segment_size;
	HeraldPosition saved_from = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	HeraldPosition saved_to = atomic_load_explicit(&spiller->retention->to, memory_order_relaxed);
	uint64_t	bytes = spiller->calls->others_bytes_between ?
		spiller->calls->others_bytes_between(from, to) : 0;

	if (saved_from < from)
		saved_from = from;
	if (saved_to > to)
		saved_to = to;
	if (saved_to > saved_from)
		bytes += (saved_to - saved_from) & ~(size - 1);
	return bytes;
}

/* Give up data until `bytes` more bytes are within the limit.  False: they cannot be. */
static bool
keep_within_limit(Spiller *spiller, uint64_t bytes)
{
	while (bytes_kept(spiller) + bytes > spiller->limits->bytes_max)
	{
		if (!give_up_oldest(spiller, HERALD_OVERRUN_LIMIT))
			return false;
	}
	return true;
}

static uint64_t
bytes_kept(const Spiller *spiller)
{
	return herald_retention_bytes(spiller->retention) +
		(spiller->calls->others_bytes ? spiller->calls->others_bytes() : 0);
}

/*
 * AGAIN: saving failed, but deleting removed files may make room for a second attempt; if
 * there were none, the oldest data was given up for that.  NO_ROOM: the segment itself was
 * given up, or is no longer in the ring, so it need not be saved.
 */
static HeraldRetentionResult
save_needed(Spiller *spiller, HeraldPosition segment, bool *is_left)
{
	HeraldPosition next = segment + spiller->queue->segment_size;

	if (save(spiller, segment))
		return HERALD_RETENTION_ROOM;

	/* It is no longer in the ring: no listener has needed it. */
	*is_left = true;
	if (atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)
		return HERALD_RETENTION_NO_ROOM;
	if (spiller->calls->removing() || give_up_oldest(spiller, HERALD_OVERRUN_ERROR))
		return HERALD_RETENTION_AGAIN;
	give_up_below(spiller, next, HERALD_OVERRUN_ERROR);
	return HERALD_RETENTION_NO_ROOM;
}

/*
 * No listener needs this segment, so nothing is given up to make room for it.  If the segment
 * itself was given up, its name must not be used again.  False: an incomplete file may be
 * left.
 */
static bool
save_unneeded(Spiller *spiller, HeraldPosition segment)
{
	const HeraldRetentionLimits *limits = spiller->limits;
	uint64_t	size = spiller->queue->segment_size;

	if (size > limits->retain_max ||
		segment < atomic_load_explicit(&spiller->queue->lost, memory_order_relaxed) ||
		!let_go(spiller, size, NULL) ||
		bytes_kept(spiller) + size > limits->bytes_max)
		return true;
	return save(spiller, segment);
}

/*
 * False: saving failed, or the segment is no longer in the ring.  The caller removes an
 * incomplete file when it is certain that there is no second attempt.
 */
static bool
save(Spiller *spiller, HeraldPosition segment)
{
	HeraldPosition next = segment + spiller->queue->segment_size;

	/*
	 * As in herald_queue_copy(): if the segment was recycled meanwhile, our copy may be torn.
	 */
	if (!spiller->calls->save(segment) ||
		atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)
		return false;
	HERALD_HOLD_POINT("spill-saved");

	/* [F1] release: pairs with the acquire in herald_retention_has(). */
	atomic_store_explicit(&spiller->retention->to, next, memory_order_release);
	HERALD_HOLD_POINT("spill-published");
	return true;
}

/*
 * False: a session has begun to need the segment meanwhile, or another process has the border
 * lock.
 */
static bool
recycle(Spiller *spiller, HeraldPosition segment)
{
	HeraldQueue *queue = spiller->queue;
	HeraldPosition next = segment + queue->segment_size;
	bool		result;

	if (!herald_queue_lock_border(queue))
		return false;
	result = (herald_retention_has(spiller->retention, segment) ||
			  herald_wakeup_needed(spiller->wakeup, queue) >= next) &&
		herald_queue_recycle(queue, next);
	herald_queue_unlock_border(queue);
	return result;
}

/* False: there is nothing to give up. */
static bool
give_up_oldest(Spiller *spiller, HeraldOverrunReason reason)
{
	HeraldPosition oldest = oldest_kept(spiller);
	HeraldPosition segment = UINT64_MAX;

	if (herald_retention_bytes(spiller->retention) > 0)
		segment = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	if (oldest < segment)
		return give_up_other(spiller, oldest);
	if (segment != UINT64_MAX)
		give_up_below(spiller, segment + spiller->queue->segment_size, reason);
	return segment != UINT64_MAX;
}

/*
 * Only listeners that reach the file's position miss it; they notice that themselves.  False:
 * the position is not settled yet, so no laggard needs the file: its transaction may still
 * fail, and its listeners are not marked yet.
 */
static bool
give_up_other(Spiller *spiller, HeraldPosition oldest)
{
	bool		is_needed = oldest >= herald_wakeup_needed(spiller->wakeup, spiller->queue);

	if (oldest >= atomic_load_explicit(&spiller->queue->settled, memory_order_acquire))
		return false;
	remove_others(spiller, oldest + HERALD_ALIGN);
	if (is_needed)
		spiller->calls->dropped();
	return true;
}

/*
 * A listener that has not read up to `position` misses messages.  Below `lost` its word no
 * longer holds the queue back.  So it is reported before `lost` moves up: after that it may
 * find at any moment that other processes have recycled past it.  A listener that moves back
 * below `position` in between is not reported; it notices by itself.
 */
static void
give_up_below(Spiller *spiller, HeraldPosition position, HeraldOverrunReason reason)
{
	HeraldPosition before = atomic_load_explicit(&spiller->queue->lost, memory_order_relaxed);
	HeraldPosition needed = herald_wakeup_needed(spiller->wakeup, spiller->queue);

	for (uint32_t slot = 0; slot < spiller->wakeup->slots; slot++)
	{
		uint64_t	word = atomic_load_explicit(herald_wakeup_word(spiller->wakeup, slot),
												memory_order_seq_cst);

		if (herald_listener_is_pending(word) &&
			herald_word_position(word) >= before && herald_word_position(word) < position)
			spiller->calls->overrun(slot, reason);
	}

	/*
	 * [F2] release: pairs with the acquire in herald_wakeup_needed().  Segments are given up
	 * in order.
	 */
	assert(position > before);
	atomic_store_explicit(&spiller->queue->lost, position, memory_order_seq_cst);
	if (position > needed)
		spiller->calls->dropped();
	delete_below(spiller, position);
}

/*
 * Under the border lock.  A saved segment may still be in the ring.  There a session could
 * begin to need it, and it would be saved again under the same name: so recycle it first.
 */
static Segments
retire_unneeded(Spiller *spiller, HeraldPosition position)
{
	HeraldPosition saved_to = atomic_load_explicit(&spiller->retention->to, memory_order_relaxed);

	(void) herald_queue_recycle(spiller->queue, position < saved_to ? position : saved_to);
	return retire_below(spiller, position);
}

static void
delete_below(Spiller *spiller, HeraldPosition position)
{
	remove_segments(spiller, retire_below(spiller, position));
}

/*
 * Stop keeping what is below a position; the caller removes the segments.  If no segment is
 * left, the next one that is saved begins a new range.
 */
static Segments
retire_below(Spiller *spiller, HeraldPosition position)
{
	HeraldRetention *retention = spiller->retention;
	uint64_t	size = spiller->queue->segment_size;
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_relaxed);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_relaxed);
	HeraldPosition tail = atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed);
	Segments	retired = {from, from};

	/*
	 * Other processes have recycled past `to`, so no listener needs anything before the tail.
	 */
	if (to < tail && position < tail)
		position = tail;
	while (retired.to < to && retired.to + size <= position)
		retired.to += size;
	atomic_store_explicit(&retention->from, retired.to, memory_order_release);
	if (retired.to >= to)
	{
		/* [F5] `to` last: a process that sees the new one sees the new `from` too. */
		atomic_store_explicit(&retention->from, tail, memory_order_release);
		atomic_store_explicit(&retention->to, tail, memory_order_release);
	}
	remove_others(spiller, position);
	return retired;
}

static void
remove_segments(Spiller *spiller, Segments retired)
{
	for (HeraldPosition segment = retired.from; segment < retired.to; segment += spiller->queue->segment_size)
	{
		HERALD_HOLD_POINT("spill-retired");
		spiller->calls->remove(segment);
	}
}

static void
remove_others(Spiller *spiller, HeraldPosition below)
{
	HeraldPosition removed[HERALD_CHANNEL_SETS] = {0};

	if (spiller->calls->others_remove == NULL)
		return;
	spiller->calls->others_remove(below, removed);
	for (int set = 0; set < HERALD_CHANNEL_SETS; set++)
	{
		_Atomic uint64_t *complete_from = &spiller->retention->complete_from[set];

		if (removed[set] != 0 &&
			removed[set] + HERALD_ALIGN > atomic_load_explicit(complete_from, memory_order_relaxed))
			atomic_store_explicit(complete_from, removed[set] + HERALD_ALIGN, memory_order_release);
	}
}
