/*-------------------------------------------------------------------------
 *
 * waits.h
 *	  What a process waits for, and can be seen to wait for.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAITS_H
#define HERALD_WAITS_H

#include "postgres.h"

#include "storage/condition_variable.h"

/* docs/troubleshooting.md says what each means to a user. */
typedef enum HeraldWait
{
	HERALD_WAIT_DISPATCH,		/* until listeners are marked, behind others' commits */
	HERALD_WAIT_MODERATION,		/* for more to come, so that a wakeup carries more */
	HERALD_WAIT_NOTIFICATION,	/* herald.read(): for one to come */
	HERALD_WAIT_QUEUE_ROOM,		/* for room in the ring, or for spill_lock */
	HERALD_WAIT_SPILL_READ,		/* for a temporary file */
	HERALD_WAIT_SPILL_WRITE,
	HERALD_WAIT_WATCHDOG,		/* for something to do */
	HERALD_WAITS
} HeraldWait;

/* Have the server know them.  Whenever shared memory is set up, or attached to. */
extern void herald_waits_define(void);

/* As the server's functions take it. */
extern uint32 herald_wait(HeraldWait wait);

/*
 * Waiting at one of our condition variables, in a loop: prepare, look whether it
 * is over, sleep.  As the server's own functions, but whatever sets the latch ends
 * the sleep, a cancel request too.  May throw what interrupts throw.
 */
extern void herald_wait_prepare(HeraldWait wait, ConditionVariable *variable);
extern void herald_wait_sleep(HeraldWait wait, long timeout_ms);

/* The loop has ended.  Never fails; harmless to repeat. */
extern void herald_wait_end(void);

/* Wake all that wait there.  The server ends our own preparation for it.  Never fails. */
extern void herald_wait_tell(ConditionVariable *variable);

#endif							/* HERALD_WAITS_H */
