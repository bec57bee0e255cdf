/*-------------------------------------------------------------------------
 *
 * sequencer.h
 *	  Taking finished batches from the queue, in order, one dispatcher at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SEQUENCER_H
#define HERALD_SEQUENCER_H

#include "queue.h"

/* To look at a listener's word costs a dispatcher as much as that many bytes of the queue. */
#define HERALD_COST_OF_MARK		8

/*
 * Mark all listeners that this committed batch concerns, from *offset on (bytes
 * from the header on: an entry begins there): one entry at least, and more until
 * `budget` is spent or the batch is at its end.  Moves *offset, and returns the
 * cost: bytes, and HERALD_COST_OF_MARK for each listener.
 *
 * The header has been checked against its position; the entries follow it in
 * one piece and must be checked one by one.  Called by the dispatcher with the
 * dispatch lock held: must not throw, allocate, or send a signal [D2].
 */
typedef uint64_t (*HeraldMarkBatch) (const HeraldBatchHeader *header, uint32_t *offset,
									 uint64_t budget, void *arg);

/*
 * The marks that follow belong to the run that ends there.  Listeners marked in another
 * run may have read on.  Also where a run goes on that an earlier call has not completed,
 * perhaps in another process: what that has marked is marked.
 */
typedef void (*HeraldRunBegins) (HeraldPosition end, void *arg);

typedef struct HeraldSequencerCalls
{
	HeraldRunBegins run_begins;
	HeraldMarkBatch mark_batch;
	void	   *arg;
} HeraldSequencerCalls;

typedef enum HeraldSequencerResult
{
	HERALD_SEQUENCER_DONE,		/* no finished batch is left */
	HERALD_SEQUENCER_ELSEWHERE,	/* someone else is the dispatcher, and will see ours */
	HERALD_SEQUENCER_MORE,		/* the budget is spent, and work is left: call again */
	HERALD_SEQUENCER_DAMAGED		/* the queue holds what no sender wrote */
} HeraldSequencerResult;

/*
 * Dispatch finished batches, until the cost is about `budget`: one call spends
 * more by one entry at most, with all the listeners of its channel.  A listener that was
 * marked has to be woken afterwards by herald_wakeup_pump(), whatever the
 * result: it may be ELSEWHERE although this call has dispatched something, when
 * another took over for the last look.
 */
extern HeraldSequencerResult herald_sequencer_run(HeraldQueue *queue, uint64_t budget,
											const HeraldSequencerCalls *calls);

/*
 * Is there something that a dispatcher has to do, or is doing: finished batches
 * with no unfinished one before them whose listeners are not all marked yet?
 */
extern bool herald_sequencer_is_under_way(HeraldQueue *queue);

/*
 * Something that changes whenever a call of a dispatcher gets further, within a batch too.
 * A hint: it may have changed although nothing has.
 */
extern HeraldPosition herald_sequencer_progress(HeraldQueue *queue);

#endif							/* HERALD_SEQUENCER_H */
