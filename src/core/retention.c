/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  Saves segments that leave the ring, and keeps the saved data within limits by giving up the oldest data.
 *
 * The ring holds the end of the queue.  When senders need the memory of a segment that a listener has not read yet,
 * the segment is saved first, once for all listeners.  The saved segments are one contiguous range that ends where
 * the ring begins:
 *
 *		from ........ to == tail ........ dispatched ........ head
 *		  |   saved   |           the ring                     |
 *
 * If the saved range would exceed a limit, or a segment cannot be saved, the oldest segment is deleted, and `lost`
 * moves up.  A listener below `lost` has missed messages, is notified of the loss, and no longer holds the queue
 * back.
 *
 * One process at a time saves, deletes and gives up segments: the spiller, which holds spill_lock.
 *
 * [F1] Readers take no lock.  A segment is saved completely before `to` covers the segment, and the segment's memory
 * is recycled only after that.  So a reader that finds its bytes in the ring overwritten finds these bytes saved,
 * unless they have been given up.
 *
 * Deleting a file takes long, so files are only noted for deletion, and are deleted later, mostly by other
 * processes.  These processes delete a file by its name, so a name that is noted for deletion must never be used
 * again.  Therefore the file of a segment is not noted for deletion while a second attempt may save the segment.  If
 * saving fails because the disk is full, files that were given up must be deleted before there is room: the spiller
 * ensures that these files are deleted, and then tries again.
 *
 * [F2] A listener that finds its messages gone also finds its position below `lost`, and was reported before: the
 * spiller first reports listeners, then moves `lost`, and then deletes.
 *
 * A session that resumes may ask for messages that were sent earlier.  So some data that no listener needs is
 * retained.  Retained data precedes the data that listeners need, and is deleted before needed data is given up.
 * [F4] A session that begins to need older data is the spiller while it checks that the data exists and changes its
 * word.  So either the next spiller sees the session's word, or the session sees that the data is gone.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "retention.h"

#include "stop_point.h"

static void delete_unneeded(const HeraldSpiller *spiller, uint64_t bytes, const HeraldRetentionLimits *limits);
static HeraldPosition retained_from(const HeraldSpiller *spiller, HeraldPosition needed, uint64_t bytes,
									const HeraldRetentionLimits *limits);
static HeraldPosition oldest_kept(const HeraldSpiller *spiller);
static uint64_t bytes_between(const HeraldSpiller *spiller, HeraldPosition from, HeraldPosition to);
static bool keep_within_limit(const HeraldSpiller *spiller, uint64_t bytes, const HeraldRetentionLimits *limits);
static uint64_t bytes_kept(const HeraldSpiller *spiller);
static bool save_unneeded(const HeraldSpiller *spiller, HeraldPosition segment, const HeraldRetentionLimits *limits);
static bool save(const HeraldSpiller *spiller, HeraldPosition segment);
static bool give_up_oldest(const HeraldSpiller *spiller, HeraldOverrunReason reason);
static bool give_up_large(const HeraldSpiller *spiller, HeraldPosition oldest);
static void give_up_below(const HeraldSpiller *spiller, HeraldPosition position,
						  HeraldOverrunReason reason);
static void delete_below(const HeraldSpiller *spiller, HeraldPosition position);
static void remove_large(const HeraldSpiller *spiller, HeraldPosition below);
static void move_complete_from(HeraldRetention *retention, int set, HeraldPosition missing);


/*
 * The oldest segment must be below `settled`, since no process writes there any more, and all listeners concerned
 * are marked.
 */
bool
herald_retention_can_move(HeraldQueue *queue)
{
	return herald_queue_is_short(queue) &&
		atomic_load_explicit(&queue->settled, memory_order_acquire) >= herald_queue_oldest_end(queue);
}

HeraldRetentionResult
herald_retention_move(const HeraldSpiller *spiller, const HeraldRetentionLimits *limits)
{
	HeraldQueue *queue = spiller->queue;
	HeraldWakeup *wakeup = spiller->wakeup;
	HeraldPosition segment = atomic_load_explicit(&queue->tail, memory_order_relaxed);
	HeraldPosition next = segment + queue->segment_size;
	bool		is_needed;		/* a listener needs the segment */
	bool		is_left;		/* an incomplete file of the segment may be
								 * left */

	/*
	 * Delete unneeded data even if no segment can move.  The call also makes
	 * the saved range end at the tail, as is necessary before a segment is
	 * added to the range.
	 */
	delete_unneeded(spiller, queue->segment_size, limits);
	if (!herald_retention_can_move(queue))
		return herald_queue_is_short(queue) ? HERALD_RETENTION_NO_ROOM : HERALD_RETENTION_ROOM;

	is_needed = herald_wakeup_needed(wakeup, queue) < next;
	if (is_needed && !keep_within_limit(spiller, queue->segment_size, limits))
	{
		give_up_below(spiller, next, HERALD_OVERRUN_LIMIT);
		is_needed = false;
	}
	if (!is_needed)
		is_left = !save_unneeded(spiller, segment, limits);
	else
	{
		is_left = !save(spiller, segment);
		if (is_left && (spiller->calls->removing() || give_up_oldest(spiller, HERALD_OVERRUN_ERROR)))
			return HERALD_RETENTION_AGAIN;
		if (is_left)
			give_up_below(spiller, next, HERALD_OVERRUN_ERROR);
	}
	(void) herald_queue_recycle(queue, next);
	if (is_left)
		spiller->calls->remove(segment);
	return HERALD_RETENTION_ROOM;
}

bool
herald_retention_leave_room(const HeraldSpiller *spiller, uint64_t bytes, const HeraldRetentionLimits *limits)
{
	delete_unneeded(spiller, bytes, limits);
	return keep_within_limit(spiller, bytes, limits);
}

bool
herald_retention_give_up_oldest(const HeraldSpiller *spiller)
{
	return give_up_oldest(spiller, HERALD_OVERRUN_ERROR);
}

bool
herald_retention_give_up_oldest_large(const HeraldSpiller *spiller)
{
	return give_up_large(spiller, herald_large_table_oldest(spiller->large));
}

HeraldPosition
herald_retention_kept_from(HeraldRetention *retention, HeraldQueue *queue, uint64_t sets)
{
	/*
	 * [F5] The order of these loads matters.  `to` is loaded after the tail:
	 * a segment is saved before it leaves the ring, and an older `to` would
	 * not cover the segment.  `from` is loaded after `to`, since
	 * delete_below() stores `from` first: an older `from` could be taken for
	 * the start of a range that has begun since.  `lost` is loaded after
	 * `from`: `lost` moves up before segments are deleted.
	 */
	HeraldPosition tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_acquire);
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_acquire);
	HeraldPosition lost = atomic_load_explicit(&queue->lost, memory_order_acquire);

	/*
	 * If the saved range ends before the tail, a segment after the range was
	 * recycled without being saved, so the range does not count.
	 */
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

bool
herald_retention_hold(const HeraldSpiller *spiller, uint32_t slot, uint64_t sets, HeraldPosition position,
					  HeraldPosition *had_read)
{
	/* [F4] */
	return position >= herald_retention_kept_from(spiller->retention, spiller->queue, sets) &&
		herald_wakeup_hold(spiller->wakeup, spiller->queue, slot, position, had_read);
}

bool
herald_retention_has(HeraldRetention *retention, HeraldPosition segment)
{
	/* [F1] acquire: pairs with the release in save() and delete_below(). */
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
 * Delete data that no listener needs, so that `bytes` more bytes fit.  The latest of this data stays, as far as it
 * may be retained.
 */
static void
delete_unneeded(const HeraldSpiller *spiller, uint64_t bytes, const HeraldRetentionLimits *limits)
{
	/*
	 * The file of a transaction that was rolled back has position 0, and
	 * belongs to no channel.
	 */
	remove_large(spiller, HERALD_ALIGN);
	delete_below(spiller,
				 retained_from(spiller, herald_wakeup_needed(spiller->wakeup, spiller->queue), bytes, limits));
}

/*
 * No listener needs the data before `needed`.  Returns the position from which this data may be retained, if `bytes`
 * more bytes, and one more retained segment, are to fit.
 */
static HeraldPosition
retained_from(const HeraldSpiller *spiller, HeraldPosition needed, uint64_t bytes,
			  const HeraldRetentionLimits *limits)
{
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
		position = herald_queue_next_segment(spiller->queue, position);
	}
	return position < needed ? position : needed;
}

/* Returns the oldest position of a saved segment or of a large transaction's file; UINT64_MAX: there is neither. */
static HeraldPosition
oldest_kept(const HeraldSpiller *spiller)
{
	HeraldPosition oldest = herald_large_table_oldest(spiller->large);
	HeraldPosition from = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);

	return herald_retention_bytes(spiller->retention) > 0 && from < oldest ? from : oldest;
}

/* Returns the bytes of large transactions' files and of saved segments in a range.  Only whole segments count. */
static uint64_t
bytes_between(const HeraldSpiller *spiller, HeraldPosition from, HeraldPosition to)
{
	uint64_t	size = spiller->queue->segment_size;
	HeraldPosition saved_from = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	HeraldPosition saved_to = atomic_load_explicit(&spiller->retention->to, memory_order_relaxed);
	uint64_t	bytes = herald_large_table_bytes_between(spiller->large, from, to);

	if (saved_from < from)
		saved_from = from;
	if (saved_to > to)
		saved_to = to;
	if (saved_to > saved_from)
		bytes += (saved_to - saved_from) & ~(size - 1);
	return bytes;
}

/* Give up data until `bytes` more bytes are within the limit.  Returns false if not enough data can be given up. */
static bool
keep_within_limit(const HeraldSpiller *spiller, uint64_t bytes, const HeraldRetentionLimits *limits)
{
	while (bytes_kept(spiller) + bytes > limits->bytes_max)
	{
		if (!give_up_oldest(spiller, HERALD_OVERRUN_LIMIT))
			return false;
	}
	return true;
}

static uint64_t
bytes_kept(const HeraldSpiller *spiller)
{
	return herald_retention_bytes(spiller->retention) + herald_large_table_bytes(spiller->large);
}

/*
 * Save a segment that no listener needs, if the segment may be retained.  Nothing that listeners need is given up to
 * make room for the segment.  A segment that was given up is not saved, since its name must not be used again.
 * Returns false if an incomplete file may be left.
 */
static bool
save_unneeded(const HeraldSpiller *spiller, HeraldPosition segment, const HeraldRetentionLimits *limits)
{
	uint64_t	size = spiller->queue->segment_size;

	if (size > limits->retain_max ||
		segment < atomic_load_explicit(&spiller->queue->lost, memory_order_relaxed))
		return true;
	delete_unneeded(spiller, size, limits);
	return bytes_kept(spiller) + size > limits->bytes_max || save(spiller, segment);
}

/*
 * Save a segment.  Returns false if saving failed: the caller removes an incomplete file when it is certain that
 * there is no second attempt.
 */
static bool
save(const HeraldSpiller *spiller, HeraldPosition segment)
{
	if (!spiller->calls->save(segment))
		return false;
	HERALD_HOLD_POINT("spill-saved");

	/* [F1] release: pairs with the acquire in herald_retention_has(). */
	atomic_store_explicit(&spiller->retention->to, segment + spiller->queue->segment_size,
						  memory_order_release);
	HERALD_HOLD_POINT("spill-published");
	return true;
}

/*
 * Give up the oldest saved segment, or the oldest file of a large transaction.  Returns false if nothing can be
 * given up.
 */
static bool
give_up_oldest(const HeraldSpiller *spiller, HeraldOverrunReason reason)
{
	HeraldPosition oldest = oldest_kept(spiller);
	HeraldPosition segment = UINT64_MAX;

	if (herald_retention_bytes(spiller->retention) > 0)
		segment = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	if (oldest < segment)
		return give_up_large(spiller, oldest);
	if (segment != UINT64_MAX)
		give_up_below(spiller, segment + spiller->queue->segment_size, reason);
	return segment != UINT64_MAX;
}

/*
 * Give up the large transaction's file at the position `oldest`.  No listener is reported, since a listener that
 * reaches this position notices the missing file itself.  Returns false if there is no file, or if its position is
 * not settled: then its transaction may still be committing, so the file must stay.
 */
static bool
give_up_large(const HeraldSpiller *spiller, HeraldPosition oldest)
{
	bool		is_needed = oldest >= herald_wakeup_needed(spiller->wakeup, spiller->queue);

	if (oldest >= atomic_load_explicit(&spiller->queue->settled, memory_order_acquire))
		return false;
	remove_large(spiller, oldest + HERALD_ALIGN);
	if (is_needed)
		spiller->calls->dropped();
	return true;
}

/*
 * Give up everything below `position`.  A listener that has not read up to `position` misses messages.  Such a
 * listener is reported before `lost` moves up: after that, its word no longer holds the queue back, and it may find
 * at any moment that its messages are gone.
 */
static void
give_up_below(const HeraldSpiller *spiller, HeraldPosition position, HeraldOverrunReason reason)
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
	 * [F2] release: `lost` moves up before data is deleted.  Segments are
	 * given up in order.
	 */
	assert(position > before);
	atomic_store_explicit(&spiller->queue->lost, position, memory_order_seq_cst);
	if (position > needed)
		spiller->calls->dropped();
	delete_below(spiller, position);
}

/*
 * Delete the saved data below a position.  If no segment is left, the next segment that is saved begins a new range.
 */
static void
delete_below(const HeraldSpiller *spiller, HeraldPosition position)
{
	HeraldRetention *retention = spiller->retention;
	uint64_t	size = spiller->queue->segment_size;
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_relaxed);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_relaxed);
	HeraldPosition tail = atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed);
	HeraldPosition left = from;

	/*
	 * A segment that was recycled without being saved was not needed, so
	 * nothing before that segment is needed.
	 */
	if (to < tail && position < tail)
		position = tail;
	while (left < to && left + size <= position)
		left += size;
	atomic_store_explicit(&retention->from, left, memory_order_release);
	if (left >= to)
	{
		/*
		 * [F5] `to` is stored last, so a process that sees the new `to` also
		 * sees the new `from`.
		 */
		atomic_store_explicit(&retention->from, tail, memory_order_release);
		atomic_store_explicit(&retention->to, tail, memory_order_release);
	}
	remove_large(spiller, position);
	for (HeraldPosition segment = from; segment < left; segment += size)
	{
		HERALD_HOLD_POINT("spill-retired");
		spiller->calls->remove(segment);
	}
}

static void
remove_large(const HeraldSpiller *spiller, HeraldPosition below)
{
	HeraldPosition removed[HERALD_CHANNEL_SETS] = {0};

	herald_large_table_remove_below(spiller->large, below, removed, spiller->calls->remove_large);
	for (int set = 0; set < HERALD_CHANNEL_SETS; set++)
	{
		if (removed[set] != 0)
			move_complete_from(spiller->retention, set, removed[set]);
	}
}

/* Note that messages on channels of this set are missing at this position, and perhaps at earlier positions. */
static void
move_complete_from(HeraldRetention *retention, int set, HeraldPosition missing)
{
	_Atomic uint64_t *complete_from = &retention->complete_from[set];

	if (missing + HERALD_ALIGN > atomic_load_explicit(complete_from, memory_order_relaxed))
		atomic_store_explicit(complete_from, missing + HERALD_ALIGN, memory_order_release);
}
