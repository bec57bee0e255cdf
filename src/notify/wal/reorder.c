/*-------------------------------------------------------------------------
 *
 * reorder.c
 *	  Turns records of the WAL into the logged notifications of each committed transaction.
 *
 * For messages of pg_herald, this file does what the server's ReorderBuffer does for logical decoding, with a tenth of
 * the code.  Here drop_ended() is the counterpart of ReorderBufferAbortOld().  A long message is not written to a file,
 * but read again from the WAL at the commit.
 *
 * A sender writes its message before its commit record.  Records of other transactions may be between the two, and the
 * message has no effect without the commit record.  So messages are kept here, by transaction id, until the commit
 * record is met.  If a message has several parts, or is longer than 64 kB, only the places of its parts are kept, and a
 * separate reader reads the parts again at the commit. core/wal_parts.c has the rules for reading parts again.
 *
 * A transaction is dropped at its abort record, or when core/wal_running.c says that the transaction cannot commit
 * any more.
 *
 * pg_herald writes messages at the end of a transaction, with the id of the top-level transaction.  Nevertheless, the
 * reorder also looks for messages with the ids of subtransactions, which the commit record lists.
 *
 * A server may have run without pg_herald, and so may have written no messages for its notifications.
 * core/wal_coverage.c decides when a reader must assume this; then a gap is noted.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/transam.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/standbydefs.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "core/wal_parts.h"
#include "core/wal_running.h"
#include "notify/wal/reorder.h"
#include "notify/wal/wal_origin.h"
#include "notify/wal/wal_record.h"

/*
 * Maximum size in bytes of a message that is kept in memory until the commit, and of a buffer that is kept for later
 * records.
 */
#define TEXT_KEPT		((size_t) 64 * 1024)

typedef struct SettingChange
{
	bool		logged;
	char		pattern[FLEXIBLE_ARRAY_MEMBER];
} SettingChange;

/* A transaction or subtransaction with messages: open, or committed by the current record. */
typedef struct Transaction
{
	MemoryContext context;		/* for this struct and its contents */
	TransactionId xid;
	bool		is_prepared;
	Oid			database;

	/* The transaction's message with notifications. */
	HeraldWalParts parts;
	XLogRecPtr *places;			/* for each part that was met, the place where
								 * its record begins */
	uint32		room;
	HeraldWalText kept;			/* the whole message, if kept.text is not
								 * NULL; otherwise the message must be read
								 * again at the commit */

	List	   *settings;
} Transaction;

typedef struct Entry
{
	TransactionId xid;			/* the key */
	Transaction *transaction;
} Entry;

struct HeraldReorder
{
	MemoryContext context;
	HTAB	   *open;			/* hash table of Entry: the open transactions
								 * with messages */
	HeraldWalCoverage coverage;
	uint64		forged;
	uint64		newer;

	/*
	 * The events of the current record that herald_reorder_event() has not
	 * returned yet.  It returns them in this order: `gap`, `event`, and then
	 * the events of the transactions in `committed`.
	 */
	bool		has_gap;		/* `gap` is still to be returned */
	HeraldWalEvent gap;
	bool		has_event;		/* `event` is still to be returned; false at a
								 * commit record, where `event` has the fields
								 * that all events of `committed` share */
	HeraldWalEvent event;
	List	   *committed;		/* the transactions that the current record
								 * has committed: a list of Transaction */

	/* The state of herald_reorder_read(). */
	Transaction *batch;
	HeraldWalParts again;
	HeraldWalReader *reader;	/* NULL: the reader is closed */
	HeraldWalMessage message;	/* the part that was read last */
	char	   *buffer;			/* for the unescaped strings of one part */
	size_t		buffer_size;
};

static void forget_committed(HeraldReorder *reorder);
static void give_back(HeraldReorder *reorder);
static void take_message(HeraldReorder *reorder, XLogReaderState *record);
static void step(HeraldReorder *reorder, XLogReaderState *record, HeraldWalStep step);
static void note_gap(HeraldReorder *reorder, XLogReaderState *record, Oid database, const char *reason);
static Transaction *find(HeraldReorder *reorder, TransactionId xid);
static Transaction *find_or_add(HeraldReorder *reorder, XLogReaderState *record, Oid database, uint64 run);
static void add_part(Transaction *transaction, XLogRecPtr at, const HeraldWalMessage *message,
					 const HeraldWalText *text);
static void add_setting(HeraldReorder *reorder, Transaction *transaction, HeraldWalMessage *message,
						size_t length);
static char *buffer_for(HeraldReorder *reorder, size_t length);
static void drop_buffer(HeraldReorder *reorder);
static void take_end(HeraldReorder *reorder, XLogReaderState *record);
static void commit(HeraldReorder *reorder, TransactionId xid);
static void mark_prepared(HeraldReorder *reorder, TransactionId xid);
static void drop(HeraldReorder *reorder, TransactionId xid);
static void drop_ended(HeraldReorder *reorder, HeraldWalRunning running);
static HeraldWalNext next_part(HeraldReorder *reorder);
static HeraldWalPart read_record(HeraldReorder *reorder);
static HeraldWalPart read_part(HeraldReorder *reorder, XLogRecPtr at, const HeraldWalText *text);


HeraldReorder *
herald_reorder_begin(HeraldWalCoverage coverage)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_herald reorder",
												  ALLOCSET_DEFAULT_SIZES);
	HeraldReorder *reorder = MemoryContextAllocZero(context, sizeof(HeraldReorder));
	HASHCTL		control = {
		.keysize = sizeof(TransactionId),
		.entrysize = sizeof(Entry),
		.hcxt = context,
	};

	reorder->context = context;
	reorder->coverage = coverage;
	reorder->open = hash_create("pg_herald open transactions", 64, &control,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return reorder;
}

void
herald_reorder_end(HeraldReorder *reorder)
{
	MemoryContextDelete(reorder->context);
}

void
herald_reorder_take(HeraldReorder *reorder, XLogReaderState *record)
{
	HeraldWalRunning running = {0};
	Oid			created;

	forget_committed(reorder);
	if (herald_wal_record_is_commit(record))
		step(reorder, record, HERALD_WAL_COMMIT);
	switch (XLogRecGetRmid(record))
	{
		case RM_LOGICALMSG_ID:
			take_message(reorder, record);
			break;
		case RM_XACT_ID:
			if (hash_get_num_entries(reorder->open) > 0)
				take_end(reorder, record);
			break;
		case RM_XLOG_ID:
			if (!herald_wal_record_ends_run(record))
				break;
			running.only_prepared = true;
			drop_ended(reorder, running);
			step(reorder, record, HERALD_WAL_BEGINNING);
			break;
		case RM_STANDBY_ID:
			if ((XLogRecGetInfo(record) & ~XLR_INFO_MASK) != XLOG_RUNNING_XACTS)
				break;
			running.oldest = ((xl_running_xacts *) XLogRecGetData(record))->oldestRunningXid;
			drop_ended(reorder, running);
			break;
		case RM_DBASE_ID:
			created = herald_wal_record_created(record);
			if (OidIsValid(created))
				note_gap(reorder, record, created, "the database has been created again");
			break;
		default:
			break;
	}
	give_back(reorder);
}

bool
herald_reorder_event(HeraldReorder *reorder, HeraldWalEvent *event)
{
	if (reorder->has_gap)
	{
		reorder->has_gap = false;
		*event = reorder->gap;
		return true;
	}
	*event = reorder->event;
	if (reorder->has_event)
	{
		reorder->has_event = false;
		return true;
	}
	while (reorder->committed != NIL)
	{
		Transaction *transaction = linitial(reorder->committed);

		event->database = transaction->database;
		if (transaction->settings != NIL)
		{
			SettingChange *setting = linitial(transaction->settings);

			transaction->settings = list_delete_first(transaction->settings);
			event->kind = HERALD_WAL_EVENT_SETTING;
			event->pattern = setting->pattern;
			event->logged = setting->logged;
			return true;
		}
		if (transaction->parts.count > 0 && reorder->batch != transaction)
		{
			event->kind = HERALD_WAL_EVENT_BATCH;
			event->commit.run = transaction->parts.run;
			event->commit.place = transaction->parts.place;
			event->sender = transaction->parts.sender;
			reorder->batch = transaction;
			return true;
		}
		reorder->batch = NULL;
		reorder->committed = list_delete_first(reorder->committed);
		MemoryContextDelete(transaction->context);
		give_back(reorder);
	}
	return false;
}

void
herald_reorder_read_begin(HeraldReorder *reorder)
{
	Transaction *batch = reorder->batch;

	Assert(batch != NULL);
	reorder->again = herald_wal_parts_again(&batch->parts);
	memset(&reorder->message, 0, sizeof(reorder->message));
	if (batch->kept.text != NULL)
		return;
	if (reorder->reader == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(reorder->context);

		reorder->reader = herald_wal_reader_open(batch->parts.first);
		MemoryContextSwitchTo(caller);
	}
	herald_wal_reader_seek(reorder->reader, batch->parts.first);
}

HeraldWalNext
herald_reorder_read(HeraldReorder *reorder, HeraldWalNotification *notification)
{
	while (!herald_wal_next(&reorder->message, notification, reorder->buffer))
	{
		HeraldWalNext result = next_part(reorder);

		if (result != HERALD_WAL_NEXT_NOTIFICATION)
			return result;
	}
	return HERALD_WAL_NEXT_NOTIFICATION;
}

XLogRecPtr
herald_reorder_oldest(HeraldReorder *reorder)
{
	XLogRecPtr	oldest = InvalidXLogRecPtr;
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	if (hash_get_num_entries(reorder->open) == 0)
		return oldest;
	hash_seq_init(&scan, reorder->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (oldest == InvalidXLogRecPtr || entry->transaction->parts.first < oldest)
			oldest = entry->transaction->parts.first;
	return oldest;
}

HeraldWalCoverage
herald_reorder_coverage(const HeraldReorder *reorder)
{
	return reorder->coverage;
}

uint64
herald_reorder_forged(const HeraldReorder *reorder)
{
	return reorder->forged;
}

uint64
herald_reorder_newer(const HeraldReorder *reorder)
{
	return reorder->newer;
}

/* Forget the events of the previous record, and free its transactions. */
static void
forget_committed(HeraldReorder *reorder)
{
	ListCell   *cell;

	reorder->has_gap = reorder->has_event = false;
	reorder->batch = NULL;
	if (reorder->committed == NIL)
		return;
	foreach(cell, reorder->committed)
		MemoryContextDelete(((Transaction *) lfirst(cell))->context);
	list_free(reorder->committed);
	reorder->committed = NIL;
}

/*
 * Free the reader, and the buffer if it is large: only long messages need the two, and the next long message may be far
 * away.
 */
static void
give_back(HeraldReorder *reorder)
{
	if (reorder->reader != NULL)
		herald_wal_reader_close(reorder->reader);
	reorder->reader = NULL;
	if (reorder->buffer_size > TEXT_KEPT)
		drop_buffer(reorder);
}

static void
take_message(HeraldReorder *reorder, XLogReaderState *record)
{
	HeraldWalText text;
	HeraldWalMessage message;
	HeraldWalOrigin origin = herald_wal_origin_check(record, &text);
	HeraldWalResult result = HERALD_WAL_INVALID;
	Transaction *transaction;

	if (origin == HERALD_WAL_FOREIGN)
		return;
	if (origin == HERALD_WAL_OURS)
		result = herald_wal_scan(text.text, text.length, &message);
	if (result == HERALD_WAL_NEWER)
	{
		reorder->newer++;
		step(reorder, record, HERALD_WAL_MESSAGE);
		note_gap(reorder, record, text.database, "a later version of pg_herald has written them");
		return;
	}
	if (result == HERALD_WAL_INVALID || text.transactional != (message.kind != HERALD_WAL_ANCHOR) ||
		(text.transactional && !TransactionIdIsValid(XLogRecGetXid(record))))
	{
		reorder->forged++;
		return;
	}

	step(reorder, record, HERALD_WAL_MESSAGE);
	switch (message.kind)
	{
		case HERALD_WAL_NOTIFICATIONS:
			transaction = find_or_add(reorder, record, text.database, message.run);
			add_part(transaction, record->ReadRecPtr, &message, &text);
			break;
		case HERALD_WAL_SETTING:
			add_setting(reorder, find_or_add(reorder, record, text.database, message.run), &message,
						text.length);
			break;
		case HERALD_WAL_ANCHOR:
			memset(&reorder->event, 0, sizeof(reorder->event));
			reorder->event.kind = HERALD_WAL_EVENT_ANCHOR;
			reorder->event.anchor.wal = record->ReadRecPtr;
			reorder->event.anchor.run = message.run;
			reorder->has_event = true;
			break;
	}
}

/* Update the coverage for this step in the WAL, and note a gap if the step shows one. */
static void
step(HeraldReorder *reorder, XLogReaderState *record, HeraldWalStep step)
{
	bool		is_gap;

	reorder->coverage = herald_wal_coverage_next(reorder->coverage, step, &is_gap);
	if (is_gap)
		note_gap(reorder, record, InvalidOid, "the server may have run without pg_herald");
}

static void
note_gap(HeraldReorder *reorder, XLogReaderState *record, Oid database, const char *reason)
{
	if (reorder->has_gap)
		return;					/* the record already has a gap in all
								 * databases, which includes this one */
	memset(&reorder->gap, 0, sizeof(reorder->gap));
	reorder->gap.kind = HERALD_WAL_EVENT_GAP;
	reorder->gap.database = database;
	reorder->gap.commit.end = record->EndRecPtr;
	reorder->gap.is_creation = OidIsValid(herald_wal_record_created(record));
	reorder->gap.reason = reason;
	reorder->has_gap = true;
}

static Transaction *
find(HeraldReorder *reorder, TransactionId xid)
{
	Entry	   *entry = hash_search(reorder->open, &xid, HASH_FIND, NULL);

	return entry ? entry->transaction : NULL;
}

static Transaction *
find_or_add(HeraldReorder *reorder, XLogReaderState *record, Oid database, uint64 run)
{
	TransactionId xid = XLogRecGetXid(record);
	Transaction *transaction = find(reorder, xid);
	MemoryContext context;
	Entry	   *entry;

	if (transaction != NULL)
		return transaction;

	context = AllocSetContextCreate(reorder->context, "pg_herald transaction", ALLOCSET_SMALL_SIZES);
	transaction = MemoryContextAllocZero(context, sizeof(Transaction));
	transaction->context = context;
	transaction->xid = xid;
	transaction->database = database;
	transaction->parts = herald_wal_parts_begin(run, record->ReadRecPtr);
	entry = hash_search(reorder->open, &xid, HASH_ENTER, NULL);
	entry->transaction = transaction;
	return transaction;
}

static void
add_part(Transaction *transaction, XLogRecPtr at, const HeraldWalMessage *message, const HeraldWalText *text)
{
	MemoryContext caller = MemoryContextSwitchTo(transaction->context);

	if (message->part == 1 && message->is_last && text->length <= TEXT_KEPT)
	{
		transaction->kept = *text;
		transaction->kept.text = memcpy(palloc(text->length), text->text, text->length);
	}
	if (transaction->parts.count == transaction->room)
	{
		transaction->room = Max(4, transaction->room * 2);
		transaction->places = transaction->places == NULL ?
			palloc(transaction->room * sizeof(XLogRecPtr)) :
			repalloc_huge(transaction->places, transaction->room * sizeof(XLogRecPtr));
	}
	transaction->places[transaction->parts.count] = at;
	herald_wal_parts_take(&transaction->parts, at, message);
	MemoryContextSwitchTo(caller);
}

static void
add_setting(HeraldReorder *reorder, Transaction *transaction, HeraldWalMessage *message, size_t length)
{
	HeraldWalNotification pattern;
	MemoryContext caller;
	SettingChange *setting;

	if (!herald_wal_next(message, &pattern, buffer_for(reorder, length)))
		return;
	caller = MemoryContextSwitchTo(transaction->context);
	setting = palloc(offsetof(SettingChange, pattern) + pattern.channel_length + 1);
	setting->logged = message->logged;
	memcpy(setting->pattern, pattern.channel, pattern.channel_length + 1);
	transaction->settings = lappend(transaction->settings, setting);
	MemoryContextSwitchTo(caller);
}

/* Returns the buffer for herald_wal_next(), after making it large enough for a message whose text has this length. */
static char *
buffer_for(HeraldReorder *reorder, size_t length)
{
	if (length > reorder->buffer_size)
	{
		drop_buffer(reorder);
		reorder->buffer = MemoryContextAllocHuge(reorder->context, length);
		reorder->buffer_size = length;
	}
	return reorder->buffer;
}

static void
drop_buffer(HeraldReorder *reorder)
{
	if (reorder->buffer != NULL)
		pfree(reorder->buffer);
	reorder->buffer = NULL;
	reorder->buffer_size = 0;
}

/* Take a record of a commit, an abort or a PREPARE, which concerns a transaction and its subtransactions. */
static void
take_end(HeraldReorder *reorder, XLogReaderState *record)
{
	void		(*take) (HeraldReorder *reorder, TransactionId xid);
	HeraldWalEnd end = herald_wal_record_end(record);

	switch (end.kind)
	{
		case HERALD_WAL_END_COMMIT:
			memset(&reorder->event, 0, sizeof(reorder->event));
			reorder->event.commit.end = record->EndRecPtr;
			reorder->event.committed_at = end.committed_at;
			take = commit;
			break;
		case HERALD_WAL_END_ABORT:
			take = drop;
			break;
		case HERALD_WAL_END_PREPARE:
			take = mark_prepared;
			break;
		default:
			return;
	}
	for (int i = 0; i < end.subtransactions; i++)
		take(reorder, end.subxids[i]);
	take(reorder, end.xid);
}

static void
commit(HeraldReorder *reorder, TransactionId xid)
{
	Transaction *transaction = find(reorder, xid);
	MemoryContext caller;

	if (transaction == NULL)
		return;
	(void) hash_search(reorder->open, &xid, HASH_REMOVE, NULL);
	caller = MemoryContextSwitchTo(reorder->context);
	reorder->committed = lappend(reorder->committed, transaction);
	MemoryContextSwitchTo(caller);
}

static void
mark_prepared(HeraldReorder *reorder, TransactionId xid)
{
	Transaction *transaction = find(reorder, xid);

	if (transaction != NULL)
		transaction->is_prepared = true;
}

static void
drop(HeraldReorder *reorder, TransactionId xid)
{
	Transaction *transaction = find(reorder, xid);

	if (transaction == NULL)
		return;
	(void) hash_search(reorder->open, &xid, HASH_REMOVE, NULL);
	MemoryContextDelete(transaction->context);
}

static void
drop_ended(HeraldReorder *reorder, HeraldWalRunning running)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	hash_seq_init(&scan, reorder->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		/* A hash scan allows the removal of its current entry. */
		if (!herald_wal_running_includes(running, entry->xid, entry->transaction->is_prepared))
			drop(reorder, entry->xid);
	}
}

static HeraldWalNext
next_part(HeraldReorder *reorder)
{
	const Transaction *batch = reorder->batch;
	HeraldWalPart part;

	if (!batch->parts.is_complete)
		return HERALD_WAL_NEXT_GONE;
	if (herald_wal_parts_are_read(&batch->parts, &reorder->again))
		return HERALD_WAL_NEXT_END;
	do
	{
		part = batch->kept.text != NULL ?
			read_part(reorder, batch->parts.last, &batch->kept) : read_record(reorder);
	} while (part == HERALD_WAL_PART_OTHER);
	return part == HERALD_WAL_PART_NEXT ? HERALD_WAL_NEXT_NOTIFICATION : HERALD_WAL_NEXT_GONE;
}

static HeraldWalPart
read_record(HeraldReorder *reorder)
{
	const Transaction *batch = reorder->batch;
	XLogReaderState *record;
	HeraldWalText text;
	bool		is_ours;

	CHECK_FOR_INTERRUPTS();
	if (!batch->parts.lacks_parts)
		herald_wal_reader_seek(reorder->reader, batch->places[reorder->again.count]);
	if (herald_wal_reader_next(reorder->reader) != HERALD_WAL_READ_RECORD)
		return HERALD_WAL_PART_MISSING;
	record = herald_wal_reader_record(reorder->reader);
	is_ours = XLogRecGetXid(record) == batch->xid && herald_wal_origin_check(record, &text) == HERALD_WAL_OURS;
	return read_part(reorder, record->ReadRecPtr, is_ours ? &text : NULL);
}

/*
 * Look for the expected part in a record that begins at `at`.  text: the message that the batch's transaction has in
 * this record; NULL: the record has no such message.
 */
static HeraldWalPart
read_part(HeraldReorder *reorder, XLogRecPtr at, const HeraldWalText *text)
{
	HeraldWalMessage message = {0};
	bool		is_message = text != NULL &&
		herald_wal_scan(text->text, text->length, &message) == HERALD_WAL_VALID;
	HeraldWalPart part = herald_wal_parts_read(&reorder->batch->parts, &reorder->again, at,
											   is_message ? &message : NULL);

	if (is_message && part == HERALD_WAL_PART_NEXT)
	{
		reorder->message = message;
		(void) buffer_for(reorder, text->length);
	}
	return part;
}
