/*-------------------------------------------------------------------------
 *
 * sequencer.h
 *	  Takes finished batches from the queue, in order, one dispatcher at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SEQUENCER_H
#define HERALD_SEQUENCER_H

#include "queue.h"

/* Cost of marking one listener, in bytes of the queue. */
#define HERALD_COST_OF_MARK		8

/*
 * Mark all listeners that this committed batch concerns, beginning with the entry at *offset
 * (bytes from the start of the header): at least one entry, and more until `budget` is spent
 * or the batch ends.  Advances *offset, and returns the cost: bytes, and HERALD_COST_OF_MARK
 * for each listener.
 *
 * The header has been validated; the entries follow it contiguously, and each must be
 * validated here.  Called by the dispatcher with the dispatch lock held: must not throw,
 * allocate, or send a signal [D2].
 */
typedef uint64_t (*HeraldMarkBatch) (const HeraldBatchHeader *header, uint32_t *offset,
									 uint64_t budget, void *arg);

/*
 * The following marks belong to the stretch that ends at `end`.  Listeners marked in an earlier
 * stretch may have read on since, and must be marked again.  Also called when a stretch continues that
 * an earlier call has not completed, perhaps in another process; that call's marks remain
 * valid.
 */
typedef void (*HeraldStretchBegins) (HeraldPosition end, void *arg);

typedef struct HeraldSequencerCalls
{
	HeraldStretchBegins stretch_begins;
	HeraldMarkBatch mark_batch;
	void	   *arg;
} HeraldSequencerCalls;

typedef enum HeraldSequencerResult
{
	HERALD_SEQUENCER_DONE,		/* no finished batch is left */
	HERALD_SEQUENCER_ELSEWHERE, /* another process is the dispatcher, and will
								 * see our batch */
	HERALD_SEQUENCER_MORE,		/* the budget is spent, but not all is
								 * dispatched: call again */
	HERALD_SEQUENCER_DAMAGED	/* the queue contains bytes that no sender
								 * wrote */
} HeraldSequencerResult;

/*
 * Dispatch finished batches until the cost is about `budget`; it is exceeded by at most one
 * entry, with all listeners of its channel.  Afterwards call herald_wakeup_pump() to wake the
 * marked listeners, whatever the result: it may be ELSEWHERE although this call has dispatched
 * batches, if another process took the lock before our last look.
 */
extern HeraldSequencerResult herald_sequencer_run(HeraldQueue *queue, uint64_t budget,
												  const HeraldSequencerCalls *calls);

/*
 * Is there work for a dispatcher, perhaps in progress: finished batches, with no unfinished
 * batch before them, whose listeners are not all marked yet?
 */
extern bool herald_sequencer_is_under_way(HeraldQueue *queue);

#endif							/* HERALD_SEQUENCER_H */
