/*-------------------------------------------------------------------------
 *
 * conflict.c
 *	  A query that waits on a standby, while replay waits for the query.
 *
 * A query keeps its snapshot while it waits.  If the primary has removed rows that this snapshot still shows, replay
 * waits for the query, for at most max_standby_streaming_delay (30 seconds by default).  If the query itself waits for
 * a later record of the WAL, neither the query nor replay goes on, and the data on the standby become old.  A function
 * cannot give up the snapshot of the statement that calls the function.  So a function of pg_herald ends its wait, and
 * the client repeats the statement with a new snapshot.
 *
 * The server does not show for which queries replay waits.  But when replay has stopped at a record, it waits only for
 * queries that began before the stop, and for queries that use a page that replay needs.  So a session ends the wait of
 * at most one query while replay waits at the same record.
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
#include "base/waits.h"
#include "notify/relay/conflict.h"

#define WAIT_CLASS(wait)	((wait) & 0xFF000000)


/*
 * Look at the wait events of all auxiliary processes.  Of these processes, only the startup process, which replays the
 * WAL, waits for queries, for locks, or for pages that queries use.
 */
bool
herald_conflict_exists(void)
{
	if (!RecoveryInProgress())
		return false;
	for (int i = 0; i < NUM_AUXILIARY_PROCS; i++)
	{
		uint32		wait = herald_proc_wait_event(MaxBackends + i);

		if (wait == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT || wait == WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE ||
			wait == HERALD_WAIT_EVENT_BUFFER_CLEANUP || WAIT_CLASS(wait) == PG_WAIT_LOCK)
			return true;
	}
	return false;
}

/*
 * Returns false during the first HERALD_LOOK_MIN_MS after begin_ms: if replay waits during this time, it usually waits
 * for other queries, which soon end by themselves.
 */
bool
herald_conflict_ends_wait(uint64 begin_ms)
{
	static XLogRecPtr ended_at; /* the replay position at which this session
								 * last ended a wait */
	XLogRecPtr	replayed;

	if (herald_clock_ms() - begin_ms < HERALD_LOOK_MIN_MS || !herald_conflict_exists())
		return false;
	replayed = GetXLogReplayRecPtr(NULL);
	if (replayed == ended_at)
		return false;
	ended_at = replayed;
	return true;
}

long
herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms)
{
	return RecoveryInProgress() ? herald_wait_pause(begin_ms, now_ms, end_ms) : (long) Min(end_ms - now_ms, INT_MAX);
}
