/*-------------------------------------------------------------------------
 *
 * conflict.c
 *	  A query that waits on a standby, while replay waits for the query.
 *
 * A query keeps its snapshot while it waits.  When the primary has removed rows that this snapshot still shows, replay waits
 * for the query, for max_standby_streaming_delay: 30 seconds by default.  If the query waits for what comes later in the WAL,
 * neither goes on, and all that the standby shows becomes old.  No function can give up the snapshot of its own statement; so
 * it ends its wait, and the client repeats it with a new one.
 *
 * The server does not tell for which queries replay waits; but it adds none later, except for those that read a page it needs.
 * So a query that has ended once ends no more while replay still waits at the same record.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/proc.h"

#include "base/clock.h"
#include "base/compat.h"
#include "notify/relay/conflict.h"

/* The first looks are frequent: where rows are updated all the time, replay meets its next conflict after some milliseconds. */
#define LOOK_MIN_MS		10
#define LOOK_MAX_MS		50

#define WAIT_CLASS(wait)	((wait) & 0xFF000000)


/* Of the auxiliary processes only the one that replays waits for queries, for locks, or to have a page for itself. */
bool
herald_conflict_exists(void)
{
	if (!RecoveryInProgress())
		return false;
	for (int i = 0; i < NUM_AUXILIARY_PROCS; i++)
	{
		uint32		wait = *(volatile uint32 *) &GetPGProcByNumber(MaxBackends + i)->wait_event_info;

		if (wait == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT || wait == WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE ||
			wait == HERALD_WAIT_EVENT_BUFFER_CLEANUP || WAIT_CLASS(wait) == PG_WAIT_LOCK)
			return true;
	}
	return false;
}

/* Not at once: most queries for which replay waits end by themselves. */
bool
herald_conflict_ends_wait(uint64 begin_ms)
{
	static XLogRecPtr ended_at; /* the end of the record before the one at which replay waited then */
	XLogRecPtr	replayed;

	if (herald_clock_ms() - begin_ms < LOOK_MIN_MS || !herald_conflict_exists())
		return false;
	replayed = GetXLogReplayRecPtr(NULL);
	if (replayed == ended_at)
		return false;
	ended_at = replayed;
	return true;
}

/* About as long as it has waited. */
long
herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms)
{
	uint64		left_ms = Min(end_ms - now_ms, INT_MAX);

	if (RecoveryInProgress())
		left_ms = Min(left_ms, Max(LOOK_MIN_MS, Min(now_ms - begin_ms, LOOK_MAX_MS)));
	return (long) left_ms;
}
