/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  The pending notifications at the transaction's end: reserve, then finish.
 *
 * Everything that may fail or wait is done before the commit record is
 * written: finding room, copying.  After it, nothing is
 * left but to flip the batch's state.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "miscadmin.h"

#include "base/client_message.h"
#include "base/compat.h"
#include "base/outbox.h"
#include "base/shared.h"
#include "base/wake_watchdog.h"
#include "core/stop_point.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/position/bypass.h"
#include "notify/sender/admission.h"
#include "notify/sender/large_transaction.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/storage/spill.h"

static struct
{
	bool		is_reserved;
	const char *entries;		/* what was put into the queue */
	HeraldPosition position;
	HeraldPosition end;
	TimestampTz message;		/* the client's, with the last reservation */
}			batch;

static void notify_natively(const HeraldEntry *entry);


void
herald_publish_reserve(void)
{
	HeraldBatch info = {
		.count = herald_pending_count(),
		.database = MyDatabaseId,
		.sender_pid = MyProcPid,
	};
	uint64		length;
	HeraldPosition previous;	/* the end of the batch to wait for; see admission.c */
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

	HERALD_STOP_POINT("publish-reserve");

	/* Make room early, and only if that needs no wait: then senders rarely find the ring full. */
	if (herald_queue_is_short(herald_queue))
		(void) herald_spill_make_room(false);
	previous = herald_note_client_message(&batch.message) ? 0 : batch.end;
	if (!herald_admission_reserve(&info, length, previous, &batch.position))
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
		herald_wake_watchdog_if_asleep();
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
	herald_spill_delete_in_return();	/* when no other session waits for us */
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
			case HERALD_ENTRY_COMMIT:
				break;
		}
	}
	return false;
}
