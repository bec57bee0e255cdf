/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  The pending notifications at the transaction's end: reserve, then finish.
 *
 * Everything that may fail or wait is done before the commit record is
 * written: waiting for listeners, finding room, copying.  After it, nothing is
 * left but to flip the batch's state [Q3].
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "compat/compat.h"
#include "core/flow.h"
#include "dispatch/dispatch.h"
#include "dispatch/watchdog.h"
#include "sender/pending.h"
#include "sender/publish.h"
#include "shared.h"

/*
 * Flow control.  Past the threshold a sender waits in steps until the
 * listeners have caught up to half of it, or for the limit, whichever is
 * first.  With the ring full it waits on as long as listeners move, however
 * slowly, and gives up when none has moved for the limit.
 */
#define BACKLOG_MAX_OF_RING		4	/* a quarter */
#define WAIT_STEP_MIN_MS		1
#define WAIT_STEP_MAX_MS		10
#define WAIT_TOTAL_MAX_MS		1000

static struct
{
	bool		is_reserved;
	HeraldPosition position;
	HeraldPosition end;
}			batch;

static void wait_for_listeners(void);
static bool wait_for_room(void);
static void wait_step(long step_ms);
herald_noreturn static void report_full(void);
herald_noreturn static void report_too_large(uint64 length);


void
herald_publish_reserve(void)
{
	HeraldBatch info = {
		.count = herald_pending_count(),
		.database = MyDatabaseId,
		.sender_pid = MyProcPid,
	};
	const char *entries;
	uint64		length;

	if (info.count == 0)
		return;

	entries = herald_pending_entries(&length);
	if (length > herald_log_batch_max(herald_log))
		report_too_large(length);

	wait_for_listeners();
	if (herald_log_is_short(herald_log))
		(void) herald_log_recycle(herald_log, herald_wakeup_needed(herald_wakeup, herald_log));

	while (!herald_log_reserve(herald_log, &info, length, &batch.position))
	{
		if (!wait_for_room())
			report_full();
	}

	/* From here to the end of the transaction the batch is ours to finish. */
	batch.is_reserved = true;
	batch.end = batch.position + sizeof(HeraldBatchHeader) + length;
	herald_log_fill(herald_log, batch.position, entries, length);
	herald_shared_count(HERALD_COUNT_BATCHES, 1);
}

bool
herald_publish_is_reserved(void)
{
	return batch.is_reserved;
}

bool
herald_publish_finish(bool committed, HeraldPosition *end)
{
	if (!batch.is_reserved)
		return false;

	batch.is_reserved = false;
	*end = batch.end;
	if (committed)
	{
		TimestampTz now = GetCurrentTransactionStopTimestamp();

		herald_log_commit(herald_log, batch.position, now);
		herald_dispatch_run_committed(now);
	}
	else
	{
		herald_log_abort(herald_log, batch.position);
		herald_dispatch_run();
	}
	return true;
}

/* Flow control: do not run away from the listeners that make progress. */
static void
wait_for_listeners(void)
{
	uint64		backlog_max = herald_log->ring_size / BACKLOG_MAX_OF_RING;
	long		step_ms = WAIT_STEP_MIN_MS;
	TimestampTz start;

	if (herald_flow_backlog(herald_log, herald_wakeup, backlog_max) <= backlog_max)
		return;

	/* The watchdog must be there to tell us whom not to wait for. */
	herald_watchdog_alert();
	herald_shared_count(HERALD_COUNT_FLOW_WAITS, 1);
	start = GetCurrentTimestamp();
	do
	{
		wait_step(step_ms);
		step_ms = Min(step_ms * 2, WAIT_STEP_MAX_MS);
	} while (herald_flow_backlog(herald_log, herald_wakeup, backlog_max / 2) > backlog_max / 2 &&
			 !TimestampDifferenceExceeds(start, GetCurrentTimestamp(), WAIT_TOTAL_MAX_MS));
}

/*
 * The ring is full.  True: try again.  False: what it is full of is needed by
 * someone who has not moved for as long as we may wait.
 */
static bool
wait_for_room(void)
{
	HeraldPosition before = herald_wakeup_needed(herald_wakeup, herald_log);
	TimestampTz start = GetCurrentTimestamp();

	herald_watchdog_alert();
	do
	{
		HeraldPosition needed = herald_wakeup_needed(herald_wakeup, herald_log);

		if (herald_log_recycle(herald_log, needed) || needed > before ||
			!herald_log_is_short(herald_log))
			return true;
		herald_dispatch_run();
		wait_step(WAIT_STEP_MAX_MS);
	} while (!TimestampDifferenceExceeds(start, GetCurrentTimestamp(), WAIT_TOTAL_MAX_MS));
	return false;
}

static void
wait_step(long step_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 step_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
report_full(void)
{
	HeraldPosition needed = herald_wakeup_needed(herald_wakeup, herald_log);
	int32		laggard = herald_wakeup_laggard(herald_wakeup, needed);

	herald_shared_count(HERALD_COUNT_REFUSED, 1);
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many notifications in the queue of pg_herald (herald.queue_memory is %llu kB)",
					(unsigned long long) (herald_log->ring_size / 1024)),
			 laggard >= 0 ?
			 errdetail("The listening backend with PID %d has not read the oldest of them, and makes no progress.",
					   (int) atomic_load_explicit(&herald_slots[laggard].pid, memory_order_relaxed)) :
			 errdetail("A transaction that has sent notifications has been committing since before the oldest of them."),
			 errhint("See herald.listeners. End that backend's transaction, or increase herald.queue_memory.")));
}

static void
report_too_large(uint64 length)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many notifications in one transaction"),
			 errdetail("They take %llu bytes; with herald.queue_memory at %llu kB a transaction may take %llu.",
					   (unsigned long long) length,
					   (unsigned long long) (herald_log->ring_size / 1024),
					   (unsigned long long) herald_log_batch_max(herald_log)),
			 errhint("Increase herald.queue_memory, or set herald.enabled to off for this transaction.")));
}
