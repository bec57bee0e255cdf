/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  From finished batches to woken listeners.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DISPATCH_H
#define HERALD_DISPATCH_H

#include "postgres.h"

#include "core/queue_layout.h"

/* Before the first dispatch of this process, where an error is allowed.  Harmless to repeat. */
extern void herald_dispatch_attach(void);

/*
 * Dispatch what is finished and wake the first of the listeners that it
 * concerns, unless another process is at it.  Never fails.  To be called after a
 * batch was finished; the process must have attached the channel map, or else
 * must know that it has no batch.  False: the queue is switched off, and a process
 * that has committed a batch has to say so (herald_damage_tell()).
 */
extern bool herald_dispatch_run(void);

/*
 * How long a session waits at most until batches are settled: those of other sessions, whose
 * commits may be in progress, or its own previous one.
 */
#define HERALD_SETTLED_WAIT_MS	100

/*
 * The same for a session that loses something if it goes on earlier: a dispatcher may have lost its
 * CPU, and a commit takes a flush.  But a commit may wait for a standby for any length of time.
 */
#define HERALD_COMMIT_WAIT_MS	1000

/*
 * Wait until the listeners of everything below this position have been marked,
 * however long an earlier batch takes to be finished; or until the queue is
 * switched off.  lock_timeout or a cancel request ends the wait and has no other effect: the
 * statement that it was meant for has been committed.  Throws nothing but what
 * ends the session.  By a backend that holds no locks of ours.
 */
extern void herald_dispatch_wait_after_commit(HeraldPosition position);

/*
 * Wait until the listeners of everything below this position have been marked
 * that is finished and has nothing unfinished before it.  Another process may be
 * at that just now: this takes as long as a dispatcher does, and no longer than
 * HERALD_SETTLED_WAIT_MS.  A cancel request as above.
 */
extern void herald_dispatch_catch_up(HeraldPosition position);

/*
 * Before our own commit: wait until the listeners of everything below this position have been
 * marked, also of what is still committing; for limit_ms at most.  Calls `serve` when interrupts
 * may be pending, and may throw what that throws.
 */
typedef void (*HeraldServeInterrupts) (void *arg);
extern void herald_dispatch_wait_before_commit(HeraldPosition position, uint64 limit_ms,
											   HeraldServeInterrupts serve, void *arg);

/*
 * Wait until the listeners of everything below this position have been marked, also of what is
 * still committing; until the queue is switched off; or until end_ms (herald_clock_ms()).  Also
 * returns when an interrupt is pending, which this function does not serve.  True: the listeners
 * have been marked, or the queue is switched off.
 */
extern bool herald_dispatch_wait_until(HeraldPosition position, uint64 end_ms);

/* Would herald_dispatch_catch_up() have to wait, or to dispatch?  Never fails. */
extern bool herald_dispatch_is_behind(HeraldPosition position);

/* The transaction was aborted, perhaps by an error during such a wait.  Never fails. */
extern void herald_dispatch_cancel_wait(void);

#endif							/* HERALD_DISPATCH_H */
