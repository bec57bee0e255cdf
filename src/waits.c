/*-------------------------------------------------------------------------
 *
 * waits.c
 *	  What a process can be seen to wait for: the wait events of pg_herald.
 *
 * In pg_stat_activity they are of type Extension, with a name of their own
 * from PostgreSQL 17 on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat/compat.h"
#include "waits.h"

static const char *const names[HERALD_WAITS] = {
	[HERALD_WAIT_DISPATCH] = "HeraldDispatch",
	[HERALD_WAIT_MODERATION] = "HeraldModeration",
	[HERALD_WAIT_QUEUE_ROOM] = "HeraldQueueRoom",
	[HERALD_WAIT_SPILL_READ] = "HeraldSpillRead",
	[HERALD_WAIT_SPILL_WRITE] = "HeraldSpillWrite",
	[HERALD_WAIT_WATCHDOG] = "HeraldWatchdog",
};

/* Found out by the postmaster; fork() passes it on. */
static uint32 events[HERALD_WAITS];


void
herald_waits_define(void)
{
	for (int i = 0; i < HERALD_WAITS; i++)
		events[i] = herald_wait_event_new(names[i]);
}

uint32
herald_wait(HeraldWait wait)
{
	return events[wait];
}
