/*-------------------------------------------------------------------------
 *
 * waits.h
 *	  What a process can be seen to wait for: the wait events of pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAITS_H
#define HERALD_WAITS_H

#include "postgres.h"

/* docs/troubleshooting.md says what each means to a user. */
typedef enum HeraldWait
{
	HERALD_WAIT_DISPATCH,		/* for one's own batch, behind others' commits */
	HERALD_WAIT_MODERATION,		/* for more to come, so that a wakeup carries more */
	HERALD_WAIT_QUEUE_ROOM,		/* for room in the ring */
	HERALD_WAIT_SPILL_READ,		/* for a temporary file */
	HERALD_WAIT_SPILL_WRITE,
	HERALD_WAIT_WATCHDOG,		/* for something to do */
	HERALD_WAITS
} HeraldWait;

/* Have the server know them.  Whenever shared memory is set up, or attached to. */
extern void herald_waits_define(void);

/* As the server's functions take it. */
extern uint32 herald_wait(HeraldWait wait);

#endif							/* HERALD_WAITS_H */
