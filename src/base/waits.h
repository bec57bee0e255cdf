/*-------------------------------------------------------------------------
 *
 * waits.h
 *	  Wait events, and waiting at condition variables.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAITS_H
#define HERALD_WAITS_H

#include "postgres.h"

#include "storage/condition_variable.h"

#include "core/stop_point.h"	/* HERALD_MAY_WAIT() */

/* docs/troubleshooting.md explains each to users. */
typedef enum HeraldWait
{
	HERALD_WAIT_DISPATCH,		/* for batches to be settled: also for room in
								 * the ring; for a transaction that bypasses
								 * our queue to be counted */
	HERALD_WAIT_HOUSEKEEPER,	/* for the next look */
	HERALD_WAIT_MODERATION,		/* for more messages, so that a wakeup carries
								 * more */
	HERALD_WAIT_NOTIFICATION,	/* herald.read(): for a notification */
	HERALD_WAIT_RELAY,			/* for the relay to begin, to end, or to meet
								 * evidence that the primary runs pg_herald */
	HERALD_WAIT_RELAY_IDLE,		/* the relay: for more WAL to be replayed */
	HERALD_WAIT_REPLAY,			/* for a standby to replay what a client has
								 * received elsewhere, or for WAL that cannot
								 * be read yet */
	HERALD_WAIT_SETTINGS,		/* for commits that use older settings of
								 * channels to end */
	HERALD_WAIT_SPILL_READ,		/* for a temporary file */
	HERALD_WAIT_SPILL_WRITE,
	HERALD_WAIT_WATCHDOG,		/* for something to do */
	HERALD_WAITS
} HeraldWait;

/*
 * Register the wait events with the server.  To be called whenever shared memory is set up or
 * attached.
 */
extern void herald_waits_define(void);

/* The wait event in the form that the server's functions take. */
extern uint32 herald_wait(HeraldWait wait);

/*
 * To wait at one of our condition variables, in a loop: prepare, check the condition, sleep.
 * Like the server's own functions, except that every set latch ends the sleep.  Preparing serves
 * interrupts from the second time on, so it may throw.
 */
extern void herald_wait_prepare(HeraldWait wait, ConditionVariable *variable);
extern void herald_wait_sleep(HeraldWait wait, long timeout_ms);

/*
 * How long to sleep between two looks at something that changes without waking us, in milliseconds: about as long as
 * the wait has lasted, from HERALD_LOOK_MIN_MS to HERALD_LOOK_MAX_MS, and until end_ms at most.  Times by
 * herald_clock_ms().
 */
#define HERALD_LOOK_MIN_MS		10
#define HERALD_LOOK_MAX_MS		50
extern long herald_wait_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms);

/* To be called after the loop.  Never fails; harmless to repeat. */
extern void herald_wait_end(void);

/*
 * Wake all processes that wait at the variable.  If this process has prepared to wait, the
 * server ends that.  Never fails.
 */
extern void herald_wait_tell(ConditionVariable *variable);

#endif							/* HERALD_WAITS_H */
