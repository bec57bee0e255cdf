/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  The pending notifications at the transaction's end: reserve, then finish.
 *
 * Everything that may fail or wait is done before the commit record is
 * written: finding room, copying.  After it, nothing is
 * left but to flip the batch's state [Q3].
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/bell.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/outbox.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/sender/large_transaction.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/storage/bypass.h"
#include "notify/storage/room.h"
#include "notify/storage/spill.h"

/* How long to rely on being told that there is room. */
#define ROOM_WAIT_MS	1000

/* How long a sender waits for the dispatch at the most: of its batch before, and of others'. */
#define PACE_MS			1000

/* A batch of more bytes is sent when not much else is unsettled: such a part of the ring. */
#define LARGE_BYTES		((uint64) 32 * 1024)
#define RING_PARTS		16

static struct
{
	bool		is_reserved;
	const char *entries;		/* what was put into the queue */
	HeraldPosition position;
	HeraldPosition end;
}			batch;

static void pace(void);
static void notify_natively(const HeraldEntry *entry);
static bool reserve(const HeraldBatch *info, uint64 length);
static bool reserve_large(const HeraldBatch *info, uint64 length);
static bool reserve_or_wait(const HeraldBatch *info, uint64 length);
static bool try_reserve(HeraldBatch info, uint64 length);
static void line_up(uint64 length, long timeout_ms);
static bool make_room(void);


void
herald_publish_reserve(void)
{
	HeraldBatch info = {
		.count = herald_pending_count(),
		.database = MyDatabaseId,
		.sender_pid = MyProcPid,
	};
	uint64		length;
	bool		is_in_file;

	if (info.count == 0)
	{
		herald_large_transaction_release(false); /* all of it was rolled back */
		return;
	}
	if (herald_shared_is_damaged())
	{
		herald_publish_all_natively();
		return;
	}

	herald_pending_return_to_memory();
	is_in_file = herald_pending_has_file();
	if (is_in_file)
	{
		uint64		in_file = herald_pending_complete_file();

		herald_large_transaction_publish(in_file);
		batch.entries = herald_large_transaction_reference(&length, &info.count);
	}
	else
		batch.entries = herald_pending_entries(&length);

	pace();
	HERALD_STOP_POINT("publish-reserve");
	if (herald_queue_is_short(herald_queue))
		(void) herald_spill_make_room();
	if (!reserve(&info, length))
	{
		herald_publish_all_natively();
		return;
	}

	/*
	 * From here to the end of the transaction the batch is ours to finish, with
	 * all that comes after it waiting: not for a client that does not read.
	 */
	batch.is_reserved = true;
	herald_outbox_close();
	batch.end = batch.position + sizeof(HeraldBatchHeader) + length;
	if (is_in_file)
		herald_large_transaction_place(batch.position);
	herald_queue_fill(herald_queue, batch.position, batch.entries, length);
	HERALD_STOP_POINT("publish-reserved");
	herald_shared_count(HERALD_COUNT_BATCHES, 1);

	/* A new segment: the last positions of sessions become old, even if no session listens to this batch. */
	if ((batch.position & (herald_queue->segment_size - 1)) == 0 &&
		atomic_load_explicit(&herald_control->tells_positions, memory_order_relaxed) != 0)
		herald_bell_ring();
}

void
herald_publish_natively(void)
{
	HERALD_STOP_POINT("publish-natively");
	herald_pending_hand_over(notify_natively);
}

void
herald_publish_all_natively(void)
{
	herald_publish_natively();
	herald_pending_reset();
	herald_large_transaction_release(false);
}

static void
notify_natively(const HeraldEntry *entry)
{
	CHECK_FOR_INTERRUPTS();
	herald_bypass_add(entry->channel_hash);
	Async_Notify(herald_entry_channel(entry), herald_entry_payload(entry));
}

bool
herald_publish_finish(bool committed, HeraldPosition *end)
{
	if (!batch.is_reserved)
		return false;

	batch.is_reserved = false;
	*end = batch.end;
	HERALD_HOLD_POINT("publish-committed");
	if (committed)
		herald_queue_commit(herald_queue, batch.position, GetCurrentTransactionStopTimestamp());
	else
		herald_queue_abort(herald_queue, batch.position);
	HERALD_HOLD_POINT("publish-finished");
	if (!herald_dispatch_run() && committed)
		herald_damage_tell();	/* this batch reaches no listener */
	herald_outbox_open();
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

		switch ((HeraldEntryKind) entry->kind)
		{
			case HERALD_ENTRY_NOTIFICATION:
			case HERALD_ENTRY_CHANNEL:
				if (test(entry))
					return true;
				break;
			case HERALD_ENTRY_ALL_LISTENERS:
				return true;
			case HERALD_ENTRY_FILE:
				break;
		}
	}
	return false;
}

/*
 * Between two messages of a client others have the CPU anyway.  But what goes to many
 * channels with many listeners takes longer to dispatch than to send.
 */
static void
pace(void)
{
	static TimestampTz message_before;
	TimestampTz message = GetCurrentStatementStartTimestamp();

	if (message == message_before || herald_dispatch_is_far_behind())
		(void) herald_dispatch_pace(batch.end, herald_clock_ms() + PACE_MS);
	message_before = message;
}

/* False: the queue is damaged.  Large batches wait for the dispatch first. */
static bool
reserve(const HeraldBatch *info, uint64 length)
{
	volatile bool success;
	uint64		begin_ms;

	/* It may have been found while we waited. */
	if (herald_shared_is_damaged())
		return false;
	if (length <= LARGE_BYTES && try_reserve(*info, length))
		return true;

	begin_ms = herald_clock_ms();
	PG_TRY();
	{
		success = length > LARGE_BYTES && reserve_large(info, length);
		if (!success)
		{
			/* To a user this is as a lock that somebody else holds. */
			if (LockTimeout > 0)
				enable_timeout_after(LOCK_TIMEOUT, Max(1, LockTimeout - (int) (herald_clock_ms() - begin_ms)));
			success = reserve_or_wait(info, length);
		}
	}
	PG_FINALLY();
	{
		if (LockTimeout > 0)
			disable_timeout(LOCK_TIMEOUT, true);
		herald_room_leave();
	}
	PG_END_TRY();
	return success;
}

/*
 * Senders of large batches, however many, leave little to dispatch before a stranger's
 * notification.  False: that has taken too long, or the dispatch does not get further.
 */
static bool
reserve_large(const HeraldBatch *info, uint64 length)
{
	HeraldBatch paced = *info;
	uint64		now_ms = herald_clock_ms();
	uint64		end_ms = now_ms + (LockTimeout > 0 ? Min(LockTimeout, PACE_MS) : PACE_MS);

	paced.unsettled_max = herald_queue->ring_size / RING_PARTS;
	for (; !herald_shared_is_damaged(); now_ms = herald_clock_ms())
	{
		HeraldPosition head;

		if (try_reserve(paced, length))
			return true;
		if (now_ms >= end_ms)
			return false;
		head = atomic_load(&herald_queue->head);
		if (head > atomic_load(&herald_queue->settled) + paced.unsettled_max)
		{
			herald_room_leave();
			if (!herald_dispatch_pace(head - paced.unsettled_max, end_ms))
				return false;
		}
		else
			line_up(length, (long) (end_ms - now_ms));
	}
	return false;
}

/*
 * The ring is full of what is being committed or dispatched, or another process
 * is about to make room.  As for a lock, we wait as long as it takes.
 */
static bool
reserve_or_wait(const HeraldBatch *info, uint64 length)
{
	while (!herald_shared_is_damaged())
	{
		if (try_reserve(*info, length))
			return true;
		line_up(length, ROOM_WAIT_MS);
	}
	return false;
}

static bool
try_reserve(HeraldBatch info, uint64 length)
{
	info.room_left = herald_room_left();
	return herald_queue_reserve(herald_queue, &info, length, &batch.position);
}

/* There was no room.  Afterwards there may be. */
static void
line_up(uint64 length, long timeout_ms)
{
	HERALD_STOP_POINT("publish-no-room");
	herald_room_line_up(length);
	if ((!make_room() || herald_room_left() > 0) && !herald_shared_is_damaged())
		herald_room_wait(timeout_ms);
}

/* False: others are at it, or what fills the ring is not settled. */
static bool
make_room(void)
{
	herald_bell_ring();
	(void) herald_dispatch_run();
	return herald_spill_make_room();
}
