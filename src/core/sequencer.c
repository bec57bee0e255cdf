/*-------------------------------------------------------------------------
 *
 * sequencer.c
 *	  Takes finished batches from the queue, in order, one dispatcher at a time.
 *
 * Batches are finished in any order but dispatched in the queue's order.  A process that has
 * finished a batch tries to become the dispatcher.  If another process is the dispatcher, ours
 * need not wait: the other one dispatches our batch too.  If our batch came too late for that,
 * the other process sees it when it looks again after it has released the lock, and retries.
 * So some process always takes care of a finished batch with no unfinished one before it [D1].
 *
 * The dispatcher works in stretches: it finds the position up to which all batches are finished,
 * publishes that position, and then marks the listeners of all batches up to there.
 * Publishing first means that a listener which is marked, or which goes to sleep or joins
 * meanwhile, reads at least that far.  Only batches whose listeners are marked may be
 * recycled: `settled` follows `dispatched`.
 *
 * The work of one call is bounded, because it is done inside a commit.  Marking listeners
 * takes more time than reading bytes, so both count, and a call can end in the middle of a
 * stretch, and of a batch.  Then the published batches are marked only up to `settled` and
 * mark_offset; the next dispatcher, in any process, continues there.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "sequencer.h"

#include "segment_databases.h"
#include "stop_point.h"

/* Maximum length of a stretch in bytes, so that listeners start early. */
#define STRETCH_BYTES_MAX	(UINT64_C(64) * 1024)

static bool publish_stretch(HeraldQueue *queue, HeraldPosition *to, bool *damaged);
static bool scan(HeraldQueue *queue, HeraldPosition from, HeraldPosition *to, bool *damaged);
static HeraldPosition mark(HeraldQueue *queue, HeraldPosition from, HeraldPosition to,
						   uint64_t budget, uint64_t *spent, const HeraldSequencerCalls *calls);
static bool mark_batch(HeraldQueue *queue, const HeraldBatchHeader *header, uint64_t budget,
					   uint64_t *spent, const HeraldSequencerCalls *calls);
static bool has_finished(HeraldQueue *queue);
static bool header_is_valid(const HeraldQueue *queue, HeraldPosition position,
							const HeraldBatchHeader *header);


HeraldSequencerResult
herald_sequencer_run(HeraldQueue *queue, uint64_t budget, const HeraldSequencerCalls *calls)
{
	uint64_t	spent = 0;
	bool		damaged = false;

	do
	{
		HeraldPosition from;
		HeraldPosition to;

		HERALD_HOLD_POINT("dispatch-try");

		/* [D1] pairs with the store below and with finish() in queue.c */
		if (atomic_exchange_explicit(&queue->dispatching, 1, memory_order_seq_cst) != 0)
			return HERALD_SEQUENCER_ELSEWHERE;
		HERALD_TRY_LOCKED();

		HERALD_HOLD_POINT("dispatch-locked");
		from = atomic_load_explicit(&queue->settled, memory_order_relaxed);
		to = atomic_load_explicit(&queue->dispatched, memory_order_relaxed);
		while (spent < budget && (from < to || publish_stretch(queue, &to, &damaged)))
		{
			calls->stretch_begins(to, calls->arg);
			from = mark(queue, from, to, budget, &spent, calls);
			HERALD_HOLD_POINT("dispatch-marked");

			/*
			 * [L5] release: pairs with the acquire in herald_wakeup_needed().
			 * Sequentially consistent for [D3], in
			 * notify/dispatch/dispatch.c, and for [W3], in
			 * herald_wakeup_has_read(): it must come after the marks.
			 */
			atomic_store_explicit(&queue->settled, from, memory_order_seq_cst);
		}

		HERALD_HOLD_POINT("dispatch-unlock");

		/*
		 * [D1] pairs with the exchange above, in a process that tried
		 * meanwhile.
		 */
		atomic_store_explicit(&queue->dispatching, 0, memory_order_seq_cst);
		HERALD_TRY_UNLOCKED();
		HERALD_HOLD_POINT("dispatch-unlocked");

		if (damaged)
			return HERALD_SEQUENCER_DAMAGED;
		if (spent >= budget)
			return from < to || has_finished(queue) ? HERALD_SEQUENCER_MORE : HERALD_SEQUENCER_DONE;
	} while (has_finished(queue));

	return HERALD_SEQUENCER_DONE;
}

bool
herald_sequencer_is_under_way(HeraldQueue *queue)
{
	/* Load `settled` first: it never exceeds `dispatched`. */
	HeraldPosition settled = atomic_load_explicit(&queue->settled, memory_order_seq_cst);

	return settled < atomic_load_explicit(&queue->dispatched, memory_order_seq_cst) ||
		has_finished(queue);
}

/*
 * Publish the next stretch, so that listeners may read up to the new *to.  False: no more batches
 * are finished.
 */
static bool
publish_stretch(HeraldQueue *queue, HeraldPosition *to, bool *damaged)
{
	if (!scan(queue, *to, to, damaged))
		return false;

	/*
	 * [W1] sequentially consistent: pairs with the load in
	 * herald_wakeup_begin() and the one after a LISTEN has been entered in
	 * the channel map.  A listener that does not see this position is seen by
	 * mark(), which comes after it.
	 */
	atomic_store_explicit(&queue->dispatched, *to, memory_order_seq_cst);
	HERALD_HOLD_POINT("dispatch-published");
	return true;
}

/* Find the position up to which all batches are finished.  False: it is not beyond `from`. */
static bool
scan(HeraldQueue *queue, HeraldPosition from, HeraldPosition *to, bool *damaged)
{
	/* [L2] acquire: pairs with the reservation's compare-and-swap. */
	HeraldPosition head = atomic_load_explicit(&queue->head, memory_order_acquire);
	HeraldPosition at = from;

	while (at < head && at - from < STRETCH_BYTES_MAX)
	{
		/* [D1] */
		uint64_t	word = atomic_load_explicit(herald_queue_at(queue, at), memory_order_seq_cst);
		const HeraldBatchHeader *header = (const HeraldBatchHeader *) herald_queue_at(queue, at);

		if (word == herald_word_make(at, HERALD_BATCH_FILLER) &&
			herald_queue_next_segment(queue, at) <= head)
			at = herald_queue_next_segment(queue, at);
		else if (word == herald_word_make(at, HERALD_BATCH_COMMITTED) ||
				 word == herald_word_make(at, HERALD_BATCH_ABORTED))
		{
			if (!header_is_valid(queue, at, header) || header->length > head - at)
			{
				*damaged = true;
				break;
			}
			if (herald_word_state(word) == HERALD_BATCH_COMMITTED)
				herald_segment_note(queue, at, header->database);
			else
				herald_segment_note_empty(queue, at);
			at += header->length;
		}
		else
		{
			*damaged = word != HERALD_BATCH_CLEAR &&
				word != herald_word_make(at, HERALD_BATCH_RESERVED);
			break;
		}
	}

	*to = at;
	return at > from;
}

/*
 * Mark the listeners of batches.  Returns `to`, or the position of the batch at which the
 * budget was spent.  Reads in place: nothing from `settled` on is recycled.
 */
static HeraldPosition
mark(HeraldQueue *queue, HeraldPosition from, HeraldPosition to,
	 uint64_t budget, uint64_t *spent, const HeraldSequencerCalls *calls)
{
	while (from < to && *spent < budget)
	{
		const HeraldBatchHeader *header = (const HeraldBatchHeader *) herald_queue_at(queue, from);

		switch ((HeraldBatchState) herald_word_state(header->word))
		{
			case HERALD_BATCH_FILLER:
				from = herald_queue_next_segment(queue, from);
				break;
			case HERALD_BATCH_COMMITTED:
				if (!mark_batch(queue, header, budget, spent, calls))
					return from;
				from += header->length;
				break;
			default:
				*spent += sizeof(HeraldBatchHeader);
				from += header->length;
				break;
		}
	}
	return from;
}

/* Mark the listeners of the rest of a batch.  False: the budget was spent before its end. */
static bool
mark_batch(HeraldQueue *queue, const HeraldBatchHeader *header, uint64_t budget,
		   uint64_t *spent, const HeraldSequencerCalls *calls)
{
	uint32_t	offset = atomic_load_explicit(&queue->mark_offset, memory_order_relaxed);

	if (offset == 0)
		offset = sizeof(HeraldBatchHeader);
	*spent += sizeof(HeraldBatchHeader) +
		calls->mark_batch(header, &offset, budget - *spent, calls->arg);
	if (offset >= header->length)
		offset = 0;
	atomic_store_explicit(&queue->mark_offset, offset, memory_order_relaxed);
	return offset == 0;
}

/*
 * Is the next batch finished?  [D1] This is the last look, after the lock has been released.
 */
static bool
has_finished(HeraldQueue *queue)
{
	HeraldPosition at = atomic_load_explicit(&queue->dispatched, memory_order_seq_cst);
	uint64_t	word;

	if (at >= atomic_load_explicit(&queue->head, memory_order_seq_cst))
		return false;
	word = atomic_load_explicit(herald_queue_at(queue, at), memory_order_seq_cst);
	return herald_word_state(word) >= HERALD_BATCH_COMMITTED;
}

static bool
header_is_valid(const HeraldQueue *queue, HeraldPosition position, const HeraldBatchHeader *header)
{
	return header->length >= sizeof(HeraldBatchHeader) &&
		header->length % HERALD_ALIGN == 0 &&
		header->length <= herald_queue_next_segment(queue, position) - position;
}
