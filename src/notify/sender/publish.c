/*-------------------------------------------------------------------------
 *
 * publish.c
 *	  The pending notifications at the transaction's end: reserve, then finish.
 *
 * Everything that may fail or wait is done before the commit record is
 * written: finding room, copying, and putting logged notifications into the WAL.  After it,
 * nothing is left but to flip the batch's state.
 *
 * A batch with logged notifications begins with an entry about its commit; the notifications
 * follow it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"

#include "base/client_message.h"
#include "base/compat.h"
#include "base/entry.h"
#include "base/outbox.h"
#include "base/shared.h"
#include "base/wake_watchdog.h"
#include "core/stop_point.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/position/bypass.h"
#include "notify/position/last_logged.h"
#include "notify/relay/relay.h"
#include "notify/sender/admission.h"
#include "notify/sender/large_transaction.h"
#include "notify/sender/log_writer.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/settings/channel_settings.h"
#include "notify/storage/spill.h"

static struct
{
	bool		is_reserved;
	const char *entries;		/* what was put into the queue, after the
								 * entry about the commit */
	uint64		length;			/* bytes of these entries */
	HeraldPosition position;
	HeraldPosition end;
	TimestampTz message;		/* the client's, with the last reservation */

	/* The entry about the commit; commit_length is 0 if there is none. */
	uint64		commit_length;
	union
	{
		HeraldEntry entry;
		char		bytes[HERALD_COMMIT_LENGTH];
	}			commit;
}			batch;

/* The transaction whose notifications these are: this one, or one that a standby's relay has read in the WAL. */
static struct
{
	bool		is_relayed;
	Oid			database;
	HeraldCommitId commit;
	HeraldSender sender;
}			origin;

static bool log_pending(void);
static bool reserve(uint32 count);
static void fill(void);
static void publish_despite_damage(void);
static void refuse_logged(const HeraldEntry *entry);
static void notify_natively(const HeraldEntry *entry);
static void finish(bool committed);
static void note_commit_end(void);


void
herald_publish_as(Oid database, HeraldCommitId commit, HeraldSender sender)
{
	origin.is_relayed = true;
	origin.database = database;
	origin.commit = commit;
	origin.sender = sender;
}

void
herald_publish_reserve(void)
{
	uint32		count = herald_pending_count();
	bool		has_commit;
	bool		is_in_file;

	if (count == 0)
	{
		herald_large_transaction_release(false);	/* all of it was rolled
													 * back */
		return;
	}
	if (herald_shared_is_damaged())
	{
		publish_despite_damage();
		return;
	}

	/* After a promotion, what the former primary has sent comes first. */
	if (!origin.is_relayed)
		herald_relay_await_end();

	herald_pending_return_to_memory();
	has_commit = origin.is_relayed || log_pending();
	is_in_file = herald_pending_has_file();
	if (is_in_file)
	{
		uint64		in_file = herald_pending_complete_file();

		herald_large_transaction_publish(in_file);
		batch.entries = herald_large_transaction_reference(&batch.length, &count);
	}
	else
		batch.entries = herald_pending_entries(&batch.length);
	batch.commit_length = has_commit ? HERALD_COMMIT_LENGTH : 0;

	HERALD_STOP_POINT("publish-reserve");

	/*
	 * Make room early, and only if that needs no wait: then senders rarely
	 * find the ring full.
	 */
	if (herald_queue_is_short(herald_queue))
		(void) herald_spill_make_room(false);
	if (!reserve(has_commit ? count + 1 : count))
	{
		publish_despite_damage();
		return;
	}

	/*
	 * From here to the end of the transaction the batch is ours to finish,
	 * with all that comes after it waiting: not for a client that does not
	 * read.
	 */
	herald_outbox_close();
	if (is_in_file)
		herald_large_transaction_place(batch.position);
	fill();
	HERALD_STOP_POINT("publish-reserved");
	herald_log_writer_write(batch.position);
	HERALD_STOP_POINT("publish-logged");
	herald_shared_count(HERALD_COUNT_BATCHES, 1);

	/*
	 * A new segment: the last positions of sessions become old, even if no
	 * session listens to this batch.
	 */
	if ((batch.position & (herald_queue->segment_size - 1)) == 0 &&
		atomic_load_explicit(&herald_control->tells_positions, memory_order_relaxed) != 0)
		herald_wake_watchdog_if_asleep();
}

/*
 * Put the pending notifications on logged channels into the WAL, except for the last part of
 * their message.  False: there are none.
 */
static bool
log_pending(void)
{
	if (!herald_log_writer_begin())
		return false;
	herald_pending_visit(herald_log_writer_add);
	return herald_log_writer_complete();
}

/* False: the queue is damaged. */
static bool
reserve(uint32 count)
{
	HeraldBatch info = {.count = count};
	uint64		length = batch.commit_length + batch.length;
	HeraldPosition previous;	/* the end of the batch to wait for; see
								 * admission.c */

	if (!origin.is_relayed)
	{
		origin.database = MyDatabaseId;
		origin.sender.role = GetUserId();
	}
	info.database = origin.database;
	info.role = origin.sender.role;
	previous = herald_note_client_message(&batch.message) ? 0 : batch.end;
	if (!herald_admission_reserve(&info, length, previous, &batch.position))
		return false;
	batch.is_reserved = true;
	if (!origin.is_relayed)
	{
		memset(&origin.commit, 0, sizeof(origin.commit));
		origin.commit.run = herald_control->server_run;
		origin.commit.place = batch.position;
	}
	batch.end = batch.position + sizeof(HeraldBatchHeader) + length;
	return true;
}

static void
fill(void)
{
	if (batch.commit_length > 0)
	{
		(void) herald_entry_write_commit(&batch.commit.entry, origin.commit);
		herald_queue_fill(herald_queue, batch.position, &batch.commit, batch.commit_length);
	}
	herald_queue_fill(herald_queue, batch.position + batch.commit_length, batch.entries, batch.length);
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

/* Of the notifications that our queue cannot have, those on logged channels fail. */
static void
publish_despite_damage(void)
{
	if (!origin.is_relayed && herald_channel_settings_use())
		herald_pending_visit(refuse_logged);
	herald_publish_all_natively();
}

static void
refuse_logged(const HeraldEntry *entry)
{
	if (herald_channel_settings_include(herald_entry_channel(entry)))
		herald_publish_refuse(herald_entry_channel(entry));
}

void
herald_publish_refuse(const char *channel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot log a notification on channel \"%s\"", channel),
			 herald_shared_is_damaged() ?
			 errdetail("The channel is logged, and the notification queue of pg_herald is damaged and was switched off.") :
			 errdetail("The channel is logged, and another module sends the notification while the transaction is committing."),
			 herald_shared_is_damaged() ? errhint("Restart the server.") : 0));
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
	bool		is_ours = batch.is_reserved;

	herald_log_writer_reset();
	if (is_ours)
		finish(committed);
	origin.is_relayed = false;
	*end = batch.end;
	return is_ours;
}

static void
finish(bool committed)
{
	batch.is_reserved = false;
	HERALD_HOLD_POINT("publish-committed");
	if (committed && batch.commit_length > 0)
		note_commit_end();

	/* The server keeps the transaction's id until it has released its locks. */
	if (committed)
		herald_queue_commit(herald_queue, batch.position, GetCurrentTransactionStopTimestamp(),
							origin.is_relayed ? origin.sender.xid :
							U64FromFullTransactionId(GetTopFullTransactionIdIfAny()));
	else
		herald_queue_abort(herald_queue, batch.position);
	HERALD_HOLD_POINT("publish-finished");
	if (!herald_dispatch_run() && committed)
		herald_damage_tell();	/* this batch reaches no listener */
	herald_outbox_open();
	HERALD_HOLD_POINT("publish-dispatched");
	herald_spill_delete_in_return();	/* when no other session waits for us */
}

/*
 * XactLastCommitEnd still belongs to this transaction: before this session writes another commit
 * record, the server calls back, and this batch is finished first.
 */
static void
note_commit_end(void)
{
	if (!origin.is_relayed)
		origin.commit.end = XactLastCommitEnd;
	herald_queue_set_commit_end(herald_queue, batch.position, origin.commit.end);
	herald_last_logged_note(origin.commit);
}

bool
herald_publish_concerns(HeraldEntryTest test)
{
	const char *end = batch.entries + batch.length;

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
