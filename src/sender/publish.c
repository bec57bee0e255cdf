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
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "compat/compat.h"
#include "core/flow.h"
#include "core/stop_point.h"
#include "dispatch/dispatch.h"
#include "dispatch/watchdog.h"
#include "hush.h"
#include "queue/spill.h"
#include "sender/overflow.h"
#include "sender/pending.h"
#include "sender/publish.h"
#include "shared.h"
#include "waits.h"

/*
 * Flow control.  Past the threshold a sender waits in steps until the
 * listeners have caught up to half of it, or for the limit, whichever is
 * first.
 */
#define BACKLOG_MAX_OF_RING		4	/* a quarter */
#define WAIT_STEP_MIN_MS		1
#define WAIT_STEP_MAX_MS		10
#define WAIT_TOTAL_MAX_MS		1000

static struct
{
	bool		is_reserved;
	bool		is_reference;	/* the notifications are in a file */
	const char *entries;		/* what was put into the log */
	HeraldPosition position;
	HeraldPosition end;
	int			hushed;			/* for herald_unhush() */
}			batch;

static void wait_for_listeners(void);
static void wait_for_room(void);
static void wait_step(HeraldWait wait, long step_ms);


void
herald_publish_reserve(void)
{
	HeraldBatch info = {
		.count = herald_pending_count(),
		.database = MyDatabaseId,
		.sender_pid = MyProcPid,
	};
	uint64		length;

	if (info.count == 0)
	{
		herald_overflow_end(false); /* all of it was rolled back */
		return;
	}

	batch.is_reference = herald_pending_has_file();
	if (batch.is_reference)
	{
		uint64		in_file = herald_pending_complete_file();

		herald_overflow_publish(in_file);
		batch.entries = herald_overflow_reference(&length, &info.count);
	}
	else
		batch.entries = herald_pending_entries(&length);

	wait_for_listeners();
	HERALD_STOP_POINT("publish-reserve");
	if (herald_log_is_short(herald_log))
		(void) herald_spill_make_room();
	while (!herald_log_reserve(herald_log, &info, length, &batch.position))
		wait_for_room();

	/* From here to the end of the transaction the batch is ours to finish. */
	batch.is_reserved = true;

	/*
	 * Messages to debug with go to the client at once, and wait if it does not
	 * read, now with all behind us (trace_notify has some).
	 */
	batch.hushed = herald_hush(NOTICE);
	batch.end = batch.position + sizeof(HeraldBatchHeader) + length;
	if (batch.is_reference)
		herald_overflow_place(batch.position);
	herald_log_fill(herald_log, batch.position, batch.entries, length);
	HERALD_STOP_POINT("publish-reserved");
	herald_shared_count(HERALD_COUNT_BATCHES, 1);
}

bool
herald_publish_finish(bool committed, HeraldPosition *end)
{
	if (!batch.is_reserved)
		return false;

	batch.is_reserved = false;
	herald_unhush(batch.hushed);
	*end = batch.end;
	HERALD_HOLD_POINT("publish-committed");
	if (committed)
	{
		TimestampTz now = GetCurrentTransactionStopTimestamp();

		if (batch.is_reference)
			herald_log_commit_reference(herald_log, batch.position, now);
		else
			herald_log_commit(herald_log, batch.position, now);
		HERALD_HOLD_POINT("publish-finished");
		herald_dispatch_run_committed(now);
	}
	else
	{
		herald_log_abort(herald_log, batch.position);
		HERALD_HOLD_POINT("publish-finished");
		herald_dispatch_run();
	}
	HERALD_HOLD_POINT("publish-dispatched");
	return true;
}

bool
herald_publish_concerns(HeraldEntryTest test)
{
	const char *end = batch.entries + (batch.end - batch.position - sizeof(HeraldBatchHeader));

	for (const char *at = batch.entries; at < end; at += ((const HeraldEntry *) at)->length)
	{
		const HeraldEntry *entry = (const HeraldEntry *) at;

		if (test(entry) || (batch.is_reference && herald_entry_is_for_all(entry)))
			return true;
	}
	return false;
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
		wait_step(HERALD_WAIT_FLOW_CONTROL, step_ms);
		step_ms = Min(step_ms * 2, WAIT_STEP_MAX_MS);
	} while (herald_flow_backlog(herald_log, herald_wakeup, backlog_max / 2) > backlog_max / 2 &&
			 !TimestampDifferenceExceeds(start, GetCurrentTimestamp(), WAIT_TOTAL_MAX_MS));
}

/*
 * The ring is full of what is being committed or dispatched, or another process
 * is about to make room.  As for a lock, we wait as long as it takes.
 */
static void
wait_for_room(void)
{
	HERALD_STOP_POINT("publish-no-room");
	herald_watchdog_alert();
	herald_dispatch_run();
	if (!herald_spill_make_room())
		wait_step(HERALD_WAIT_QUEUE_ROOM, WAIT_STEP_MIN_MS);
}

static void
wait_step(HeraldWait wait, long step_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 step_ms, herald_wait(wait));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
