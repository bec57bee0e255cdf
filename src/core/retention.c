/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Which stretch of the queue has been saved elsewhere, and what is lost.
 *
 * The ring is the queue's end.  When senders need the memory of a segment that
 * some listener has yet to read, it is saved first, once, however many
 * listeners need it.  What is saved is one stretch of the queue that ends
 * where the ring begins:
 *
 *		from ........ to == tail ........ dispatched ........ head
 *		  |   saved   |           the ring                     |
 *
 * Where it would grow past a limit, or cannot be saved, the oldest is deleted,
 * and `lost` moves up: a listener below it has missed something, is told so,
 * and is no longer waited for.
 *
 * [F1] Readers take no lock: a segment is saved as a whole before `to` covers
 * it, and only then is its memory given away, so that a reader that finds its
 * bytes overwritten finds them saved, or else they are gone.
 *
 * A listener that is below `lost` may be lucky, and never notice: it was just
 * about to go on, or has nothing there.  But others have recycled without it
 * meanwhile, even under the spiller's hands.  So a segment counts as saved only
 * if it was still in the ring afterwards.
 *
 * Deleting takes long, and is left to later, and mostly to others; by name, so
 * that a name that was given to be deleted is never used again: a segment that
 * could not be saved, and may be tried again, is not among them.  Where saving
 * fails because the disk is full, what was given up must be deleted before there
 * is room: the spiller sees to that, and comes back.
 *
 * [F2] A listener that is passed over has been reported: `lost` moves up after that,
 * and a process that recycles loads it before the words.
 *
 * A session may come and ask for what was sent before.  So some of what nobody needs
 * is retained: it lies before what somebody needs, and is deleted before any of
 * that is given up.  [F4] What nobody needs is recycled, or deleted, under the
 * border lock, after a look at the words; and a session that begins to need
 * something older has that lock while it looks what is there and changes its word.
 * So either the session is seen, or it sees that it has come too late.  What is
 * given up needs no lock: a session that comes meanwhile is below `lost` like any
 * other laggard, and is told so.
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

/* Whole ones: from the first to the end of the last. */
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


/* Below `settled` nobody writes any more, and everyone concerned is marked. */
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
	bool		is_left = false;	/* a file that holds nothing */
	bool		made_room;

	/*
	 * What is saved must end at the tail before there is more of it: see retire_below().
	 * So it is the tail of just then: if others recycle more, it is not saved.
	 */
	if (!let_go(&spiller, queue->segment_size, &segment))
		return HERALD_RETENTION_NO_ROOM;
	next = segment + queue->segment_size;
	if (!herald_retention_can_move(queue))
		return herald_queue_is_short(queue) ? HERALD_RETENTION_NO_ROOM : HERALD_RETENTION_ROOM;

	/* If it is saved already, an earlier attempt did not come to recycle it. */
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
	 * [F5] In this order.  `to` after the tail, for what leaves the ring is saved before: an
	 * older `to` would hide it.  `from` after `to`, as retire_below() stores them: an older
	 * `from` would pass for that of a stretch that has begun since.  `lost` after `from`: what
	 * is given up is said to be lost before it is retired.
	 */
	HeraldPosition tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_acquire);
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_acquire);
	HeraldPosition lost = atomic_load_explicit(&queue->lost, memory_order_acquire);

	/* If what is saved ends before the tail, others have recycled more. */
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

	/* [F4] As a process that lets go of something looks at the words. */
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
 * Delete what nobody needs, but for the last of it that may be retained, with room
 * for that many bytes besides.  *tail, if not NULL: up to where the ring was recycled
 * then.  False: another process has the border lock.
 */
static bool
let_go(Spiller *spiller, uint64_t bytes, HeraldPosition *tail)
{
	Segments	retired;

	if (!herald_queue_lock_border(spiller->queue))
		return false;

	/* What was rolled back belongs to the very first position, and to no channel. */
	remove_others(spiller, HERALD_ALIGN);
	retired = retire_unneeded(spiller,
							  retained_from(spiller, herald_wakeup_needed(spiller->wakeup, spiller->queue), bytes));
	if (tail != NULL)
		*tail = atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed);
	herald_queue_unlock_border(spiller->queue);
	remove_segments(spiller, retired);
	return true;
}

/* From where on all may stay, with one more segment of it. */
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

/* The oldest position of which something is kept; UINT64_MAX: none. */
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

/* Of what is kept, so much belongs to a stretch; of segments, whole ones count. */
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

/* False: with that many bytes more there would be too many, whatever is given up. */
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
 * Where it fails, what is removed and not deleted yet may be all the room that is
 * missing.  No room: it was given up, or is no longer there; so it needs not be saved.
 */
static HeraldRetentionResult
save_needed(Spiller *spiller, HeraldPosition segment, bool *is_left)
{
	HeraldPosition next = segment + spiller->queue->segment_size;

	if (save(spiller, segment))
		return HERALD_RETENTION_ROOM;

	/* It is not there any more: nobody has needed it. */
	*is_left = true;
	if (atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)
		return HERALD_RETENTION_NO_ROOM;
	if (spiller->calls->removing() || give_up_oldest(spiller, HERALD_OVERRUN_ERROR))
		return HERALD_RETENTION_AGAIN;
	give_up_below(spiller, next, HERALD_OVERRUN_ERROR);
	return HERALD_RETENTION_NO_ROOM;
}

/*
 * Nobody needs it, so that nothing is given up if there is no room for it; and if it
 * was given up itself, its name is used up.  False: a file may be left.
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
 * False: it could not be saved, or is not there any more.  What there is of a file
 * is removed when it is certain that it is not tried again.
 */
static bool
save(Spiller *spiller, HeraldPosition segment)
{
	HeraldPosition next = segment + spiller->queue->segment_size;

	/* As in herald_queue_copy(): if it was recycled meanwhile, what we have may be torn. */
	if (!spiller->calls->save(segment) ||
		atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)
		return false;
	HERALD_HOLD_POINT("spill-saved");

	/* [F1] release: pairs with the acquire in herald_retention_has(). */
	atomic_store_explicit(&spiller->retention->to, next, memory_order_release);
	HERALD_HOLD_POINT("spill-published");
	return true;
}

/* False: a session has begun to need it meanwhile, or another process has the border lock. */
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

/* False: there is nothing. */
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
 * What is not in the queue is missed only by listeners that get there: they find out.
 * False: it is not settled yet, so it is no laggard's: its transaction may still fail,
 * and its listeners are yet to be marked.
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
 * A listener that has not read up to here has missed something.  Below `lost` its
 * word holds nothing back any more; so it is reported first: it may go on any moment,
 * and find that others have recycled without it.  One that comes back to there in between is not
 * reported; it finds out by itself.
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

	/* [F2] release: pairs with the acquire in herald_wakeup_needed().  Segments go in order. */
	assert(position > before);
	atomic_store_explicit(&spiller->queue->lost, position, memory_order_seq_cst);
	if (position > needed)
		spiller->calls->dropped();
	delete_below(spiller, position);
}

/*
 * Under the border lock.  What is saved may be in the ring still, where a session could
 * need it once more, and it would be saved by the same name: so it goes from there first.
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
 * What is below a position is not kept any more; the caller has the segments removed.  If
 * nothing is left, the next segment that is saved begins a new stretch.
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

	/* Others have recycled more, which nobody needed: nor does anybody need what is before it. */
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
