/*-------------------------------------------------------------------------
 *
 * waits.c
 *	  Wait events, and waiting at condition variables.
 *
 * In pg_stat_activity the wait events are of type Extension, with their own names from
 * PostgreSQL 17 on.
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
	[HERALD_WAIT_HOUSEKEEPER] = "HeraldHousekeeper",
	[HERALD_WAIT_MODERATION] = "HeraldModeration",
	[HERALD_WAIT_NOTIFICATION] = "HeraldNotification",
	[HERALD_WAIT_RELAY] = "HeraldRelay",
	[HERALD_WAIT_RELAY_IDLE] = "HeraldRelayIdle",
	[HERALD_WAIT_REPLAY] = "HeraldReplay",
	[HERALD_WAIT_SETTINGS] = "HeraldSettings",
	[HERALD_WAIT_SPILL_READ] = "HeraldSpillRead",
	[HERALD_WAIT_SPILL_WRITE] = "HeraldSpillWrite",
	[HERALD_WAIT_WATCHDOG] = "HeraldWatchdog",
};

/* Set by the postmaster; inherited through fork(). */
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
 * Up to PostgreSQL 15, ConditionVariablePrepareToSleep() forwards a received signal to another
 * waiter: two waiters would wake each other without end.  A timed sleep also enters the wait
 * list, or enters it again, and with a timeout of zero it returns at once.
 */
void
herald_wait_prepare(HeraldWait wait, ConditionVariable *variable)
{
	(void) ConditionVariableTimedSleep(variable, 0, herald_wait(wait));
}

/*
 * A signalled process has been removed from the wait list, so it must prepare again in any
 * case.
 */
void
herald_wait_sleep(HeraldWait wait, long timeout_ms)
{
	HERALD_MAY_WAIT();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, herald_wait(wait));
	ResetLatch(MyLatch);
}

/*
 * The first looks are frequent: on a standby whose primary updates rows all the time, replay meets its next conflict
 * with a query after some milliseconds.
 */
long
herald_wait_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms)
{
	uint64		pause_ms = Max(HERALD_LOOK_MIN_MS, Min(now_ms - begin_ms, HERALD_LOOK_MAX_MS));

	return (long) Min(pause_ms, end_ms - now_ms);
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
