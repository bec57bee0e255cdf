/*-------------------------------------------------------------------------
 *
 * waits.c
 *	  What a process waits for, and can be seen to wait for.
 *
 * In pg_stat_activity they are of type Extension, with a name of their own
 * from PostgreSQL 17 on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "base/compat.h"
#include "base/waits.h"

static const char *const names[HERALD_WAITS] = {
	[HERALD_WAIT_DISPATCH] = "HeraldDispatch",
	[HERALD_WAIT_MODERATION] = "HeraldModeration",
	[HERALD_WAIT_NOTIFICATION] = "HeraldNotification",
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
	{
		Assert(names[i] != NULL);
		events[i] = herald_wait_event_new(names[i]);
	}
}

uint32
herald_wait(HeraldWait wait)
{
	return events[wait];
}

/*
 * The server's own function to prepare would, up to 15, tell another process in the place of one
 * that was told already: two that wait for the same would wake each other without end.  Its sleep
 * enters the list, or enters it once more, and no time is over at once.
 */
void
herald_wait_prepare(HeraldWait wait, ConditionVariable *variable)
{
	(void) ConditionVariableTimedSleep(variable, 0, herald_wait(wait));
}

/* A process that was told is off the list; so it has to prepare again in any case. */
void
herald_wait_sleep(HeraldWait wait, long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, herald_wait(wait));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

void
herald_wait_end(void)
{
	ConditionVariableCancelSleep();
}

void
herald_wait_tell(ConditionVariable *variable)
{
	ConditionVariableBroadcast(variable);
}
