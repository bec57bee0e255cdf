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
 * about to go on.  But others have recycled without it meanwhile, even under
 * the spiller's hands.  So a segment counts as saved only if it was still in
 * the ring afterwards.
 *
 * Deleting takes long, and is left to later, and mostly to others; by name, so
 * that a name that was given to be deleted is never used again: a segment that
 * could not be saved, and may be tried again, is not among them. Where saving
 * fails because the disk is full, what was given up must be deleted before there
 * is room: the spiller sees to that, and comes back.
 *
 * [F2] A listener that is passed over has been reported: `lost` moves up after that,
 * and a process that recycles loads it before the words.
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
	const HeraldRetentionCalls *calls;
} Spiller;

static bool keep_within_limit(Spiller *spiller, uint64_t bytes, uint64_t bytes_max);
static uint64_t bytes_kept(const Spiller *spiller);
static HeraldRetentionResult save_segment(Spiller *spiller, HeraldPosition segment);
static bool give_up_oldest(Spiller *spiller, HeraldOverrunReason reason);
static void give_up_below(Spiller *spiller, HeraldPosition position,
						  HeraldOverrunReason reason);
static void delete_below(Spiller *spiller, HeraldPosition position);


/* Below `settled` nobody writes any more, and everyone concerned is marked. */
bool
herald_retention_can_move(HeraldQueue *queue)
{
	HeraldPosition segment = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	return herald_queue_is_short(queue) &&
		atomic_load_explicit(&queue->settled, memory_order_acquire) >= segment + queue->segment_size;
}

HeraldRetentionResult
herald_retention_move(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
					uint64_t bytes_max, const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, calls};
	HeraldPosition segment = atomic_load_explicit(&queue->tail, memory_order_relaxed);
	HeraldPosition next = segment + queue->segment_size;
	HeraldPosition needed;

	if (!herald_retention_can_move(queue))
		return HERALD_RETENTION_NO_ROOM;

	needed = herald_wakeup_needed(wakeup, queue);
	delete_below(&spiller, needed);

	/* If it is saved already, an earlier attempt did not come to recycle it. */
	if (needed < next && !herald_retention_has(retention, segment))
	{
		if (!keep_within_limit(&spiller, queue->segment_size, bytes_max))
			give_up_below(&spiller, next, HERALD_OVERRUN_LIMIT);
		if (herald_wakeup_needed(wakeup, queue) < next)
		{
			HeraldRetentionResult result = save_segment(&spiller, segment);

			if (result == HERALD_RETENTION_AGAIN)
				return HERALD_RETENTION_AGAIN;
			if (result == HERALD_RETENTION_ROOM)
			{
				HERALD_HOLD_POINT("spill-saved");

				/* [F1] release: pairs with the acquire in herald_retention_has(). */
				atomic_store_explicit(&retention->to, next, memory_order_release);
				HERALD_HOLD_POINT("spill-published");
			}
		}
	}
	return herald_queue_recycle(queue, next) ? HERALD_RETENTION_ROOM : HERALD_RETENTION_NO_ROOM;
}

bool
herald_retention_leave_room(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
						  uint64_t bytes, uint64_t bytes_max, const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, calls};

	delete_below(&spiller, herald_wakeup_needed(wakeup, queue));
	return keep_within_limit(&spiller, bytes, bytes_max);
}

bool
herald_retention_give_up_oldest(HeraldRetention *retention, HeraldQueue *queue, HeraldWakeup *wakeup,
								const HeraldRetentionCalls *calls)
{
	Spiller		spiller = {retention, queue, wakeup, calls};

	return give_up_oldest(&spiller, HERALD_OVERRUN_ERROR);
}

bool
herald_retention_has(HeraldRetention *retention, HeraldPosition segment)
{
	/* [F1] acquire: pairs with herald_retention_move() and delete_below(). */
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

/* False: with that many bytes more there would be too many, whatever is given up. */
static bool
keep_within_limit(Spiller *spiller, uint64_t bytes, uint64_t bytes_max)
{
	while (bytes_kept(spiller) + bytes > bytes_max)
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
 * No room: it was given up, or is no longer there; so it needs not be saved.
 * Where it fails, what is removed and not deleted yet may be all the room that is missing.
 */
static HeraldRetentionResult
save_segment(Spiller *spiller, HeraldPosition segment)
{
	if (!spiller->calls->save(segment))
	{
		if (spiller->calls->removing() || give_up_oldest(spiller, HERALD_OVERRUN_ERROR))
			return HERALD_RETENTION_AGAIN;
		give_up_below(spiller, segment + spiller->queue->segment_size, HERALD_OVERRUN_ERROR);
		spiller->calls->remove(segment);
		return HERALD_RETENTION_NO_ROOM;
	}

	/* As in herald_queue_copy(): it was recycled meanwhile, and what we have may be torn. */
	if (atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed) != segment)
	{
		spiller->calls->remove(segment);
		return HERALD_RETENTION_NO_ROOM;
	}
	return HERALD_RETENTION_ROOM;
}

/*
 * False: there is nothing.  What is not settled yet is no laggard's: its
 * transaction may still fail, and its listeners are yet to be marked.
 */
static bool
give_up_oldest(Spiller *spiller, HeraldOverrunReason reason)
{
	HeraldPosition segment = UINT64_MAX;
	HeraldPosition other = UINT64_MAX;

	if (herald_retention_bytes(spiller->retention) > 0)
		segment = atomic_load_explicit(&spiller->retention->from, memory_order_relaxed);
	if (spiller->calls->others_oldest)
		other = spiller->calls->others_oldest();

	if (other >= atomic_load_explicit(&spiller->queue->settled, memory_order_acquire))
		other = UINT64_MAX;

	/* What is not in the queue is missed only by listeners that get there: they find out. */
	if (other < segment)
	{
		spiller->calls->others_remove(other + HERALD_ALIGN);
		spiller->calls->dropped();
	}
	else if (segment != UINT64_MAX)
		give_up_below(spiller, segment + spiller->queue->segment_size, reason);
	return other != UINT64_MAX || segment != UINT64_MAX;
}

/*
 * A listener that has not read up to here has missed something.  Below `lost` its
 * word holds nothing back any more; so it is reported first: it may go on any moment,
 * and find that others have recycled without it.
 */
static void
give_up_below(Spiller *spiller, HeraldPosition position, HeraldOverrunReason reason)
{
	HeraldPosition before = atomic_load_explicit(&spiller->queue->lost, memory_order_relaxed);

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
	spiller->calls->dropped();
	delete_below(spiller, position);
}

/* If nothing is left, the next segment that is saved begins a new stretch. */
static void
delete_below(Spiller *spiller, HeraldPosition position)
{
	HeraldRetention *retention = spiller->retention;
	uint64_t	size = spiller->queue->segment_size;
	HeraldPosition from = atomic_load_explicit(&retention->from, memory_order_relaxed);
	HeraldPosition to = atomic_load_explicit(&retention->to, memory_order_relaxed);
	HeraldPosition tail = atomic_load_explicit(&spiller->queue->tail, memory_order_relaxed);

	/* Others have recycled more, which nobody needed: nor does anybody need what is before it. */
	if (to < tail && position < tail)
		position = tail;
	while (from < to && from + size <= position)
	{
		HeraldPosition segment = from;

		from += size;
		atomic_store_explicit(&retention->from, from, memory_order_release);
		HERALD_HOLD_POINT("spill-retired");
		spiller->calls->remove(segment);
	}
	if (from >= to)
	{
		/* `to` last: a process that sees the new one sees the new `from` too. */
		atomic_store_explicit(&retention->from, tail, memory_order_release);
		atomic_store_explicit(&retention->to, tail, memory_order_release);
	}
	if (spiller->calls->others_remove)
		spiller->calls->others_remove(position);
}
