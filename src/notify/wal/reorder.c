/*-------------------------------------------------------------------------
 *
 * reorder.c
 *	  From records of the WAL to the logged notifications of each committed transaction.
 *
 * The same task as the server's ReorderBuffer, at a tenth of its size: drop_older() is ReorderBufferAbortOld(),
 * and a long transaction is read again instead of being spilled.
 *
 * A sender writes its messages before its commit record, others' records lie between, and it is
 * the commit record that decides.  So messages wait here by transaction id.  A transaction may
 * have many parts: beyond 64 kB only their places are kept, and the parts are read again at the
 * commit, by a reader of its own.
 *
 * Reading may have begun in the middle of a transaction.  Its last part says where the first one
 * begins, and all are read again from there.
 *
 * A transaction is dropped at its abort record.  The server may also have ended without writing
 * one: so all are dropped that cannot be running any more, at a checkpoint of a shutdown, at the
 * end of a recovery, and at a list of running transactions when they are older than all of these.
 * Prepared transactions survive that, except for the last.
 *
 * Settings can be changed in a subtransaction, whose id the record has; the commit record lists the
 * subtransactions.  Notifications are written at the end, by the transaction itself.
 *
 * A server may have run without pg_herald, and logged nothing: core/wal_coverage.c.
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

#include "notify/wal/reorder.h"
#include "notify/wal/wal_origin.h"
#include "notify/wal/wal_record.h"

/* Bytes of text that are kept for a transaction. */
#define TEXT_KEPT		((size_t) 64 * 1024)

typedef struct Setting
{
	bool		logged;
	char		pattern[FLEXIBLE_ARRAY_MEMBER];
} Setting;

/* A transaction that is not committed yet, or a subtransaction. */
typedef struct Transaction
{
	MemoryContext context;		/* of this */
	TransactionId xid;
	bool		is_prepared;
	Oid			database;
	uint64		run;
	XLogRecPtr	first;			/* where its first message begins */

	/* Notifications. */
	uint32		next_number;	/* of the next part; 1 after a message's last */
	bool		lacks_parts;	/* reading began behind some of its parts */
	uint64		place;
	XLogRecPtr *parts;			/* where each begins, unless it lacks some */
	uint32		count;
	uint32		room;
	XLogRecPtr	last_part;
	char	   *text;			/* all parts in a row; NULL: too long */
	uint32	   *lengths;		/* of each part */
	size_t		text_length;

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
	HTAB	   *open;			/* of Entry */
	HeraldWalCoverage coverage;
	uint64		forged;
	uint64		newer;

	/* The events of the current record. */
	bool		has_gap;		/* `gap`, before the others */
	HeraldWalEvent gap;
	bool		has_event;		/* `event` */
	HeraldWalEvent event;
	List	   *committed;		/* Transactions with events not yet taken */

	/* Reading a batch's notifications. */
	Transaction *batch;
	HeraldWalReader *again;		/* NULL: not needed yet */
	uint32		parts_read;
	uint32		next_number;	/* of its next part */
	size_t		offset;			/* in its text */
	bool		in_part;
	bool		is_last_part;	/* the transaction's last part was read */
	HeraldWalMessage message;
	char	   *buffer;			/* for one part, unescaped */
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
static void keep_text(Transaction *transaction, const HeraldWalText *text);
static void add_setting(HeraldReorder *reorder, Transaction *transaction, HeraldWalMessage *message,
						size_t length);
static char *buffer_for(HeraldReorder *reorder, size_t length);
static void drop_buffer(HeraldReorder *reorder);
static void take_end(HeraldReorder *reorder, XLogReaderState *record);
static void commit(HeraldReorder *reorder, TransactionId xid);
static void mark_prepared(HeraldReorder *reorder, TransactionId xid);
static void drop(HeraldReorder *reorder, TransactionId xid);
static void drop_not_prepared(HeraldReorder *reorder);
static void drop_older(HeraldReorder *reorder, TransactionId oldest);
static HeraldWalNext next_part(HeraldReorder *reorder);
static HeraldWalNext read_part_again(HeraldReorder *reorder, HeraldWalText *text);
static bool is_expected_part(HeraldReorder *reorder, const HeraldWalText *text);


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
			drop_not_prepared(reorder);
			step(reorder, record, HERALD_WAL_BEGINNING);
			break;
		case RM_STANDBY_ID:
			if ((XLogRecGetInfo(record) & ~XLR_INFO_MASK) == XLOG_RUNNING_XACTS)
				drop_older(reorder, ((xl_running_xacts *) XLogRecGetData(record))->oldestRunningXid);
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
			Setting    *setting = linitial(transaction->settings);

			transaction->settings = list_delete_first(transaction->settings);
			event->kind = HERALD_WAL_EVENT_SETTING;
			event->pattern = setting->pattern;
			event->logged = setting->logged;
			return true;
		}
		if (transaction->count > 0 && reorder->batch != transaction)
		{
			event->kind = HERALD_WAL_EVENT_BATCH;
			event->commit.run = transaction->run;
			event->commit.place = transaction->place;
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
	Assert(reorder->batch != NULL);
	reorder->parts_read = 0;
	reorder->next_number = 1;
	reorder->offset = 0;
	reorder->in_part = false;
	reorder->is_last_part = false;
	if (reorder->batch->text == NULL)
	{
		if (reorder->again == NULL)
		{
			MemoryContext caller = MemoryContextSwitchTo(reorder->context);

			reorder->again = herald_wal_reader_open(reorder->batch->first);
			MemoryContextSwitchTo(caller);
		}
		herald_wal_reader_seek(reorder->again, reorder->batch->first);
	}
}

HeraldWalNext
herald_reorder_read(HeraldReorder *reorder, HeraldWalNotification *notification)
{
	while (!reorder->in_part ||
		   !herald_wal_next(&reorder->message, notification, reorder->buffer))
	{
		HeraldWalNext result;

		reorder->in_part = false;
		if (reorder->is_last_part)
			return HERALD_WAL_NEXT_END;
		result = next_part(reorder);
		if (result != HERALD_WAL_NEXT_NOTIFICATION)
			return result;
		reorder->in_part = true;
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
		if (oldest == InvalidXLogRecPtr || entry->transaction->first < oldest)
			oldest = entry->transaction->first;
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

/* Free the events of the previous record. */
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

/* Free what only long transactions need: the next one may be far away. */
static void
give_back(HeraldReorder *reorder)
{
	if (reorder->again != NULL)
		herald_wal_reader_close(reorder->again);
	reorder->again = NULL;
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

/* A step of the server's run. */
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
		return;					/* which is one of all databases */
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
	transaction->run = run;
	transaction->first = record->ReadRecPtr;
	transaction->next_number = 1;
	entry = hash_search(reorder->open, &xid, HASH_ENTER, NULL);
	entry->transaction = transaction;
	return transaction;
}

static void
add_part(Transaction *transaction, XLogRecPtr at, const HeraldWalMessage *message, const HeraldWalText *text)
{
	MemoryContext caller = MemoryContextSwitchTo(transaction->context);

	transaction->lacks_parts |= message->part != transaction->next_number && message->part != 1;
	transaction->next_number = message->is_last ? 1 : message->part + 1;
	transaction->last_part = at;
	if (message->is_last)
		transaction->place = message->place;
	if (message->first != 0 && message->first < transaction->first)
		transaction->first = message->first;

	if (transaction->count == transaction->room)
	{
		transaction->room = Max(4, transaction->room * 2);
		if (transaction->parts == NULL)
		{
			transaction->parts = palloc(transaction->room * sizeof(XLogRecPtr));
			transaction->lengths = palloc(transaction->room * sizeof(uint32));
		}
		else
		{
			transaction->parts = repalloc_huge(transaction->parts, transaction->room * sizeof(XLogRecPtr));
			transaction->lengths = repalloc_huge(transaction->lengths, transaction->room * sizeof(uint32));
		}
	}
	transaction->parts[transaction->count] = at;
	transaction->lengths[transaction->count] = text->length;
	transaction->count++;
	keep_text(transaction, text);
	MemoryContextSwitchTo(caller);
}

/* If it is not too long, and nothing before it is missing. */
static void
keep_text(Transaction *transaction, const HeraldWalText *text)
{
	size_t		length = transaction->text_length + text->length;

	if (transaction->lacks_parts || length > TEXT_KEPT || (transaction->count > 1 && transaction->text == NULL))
	{
		if (transaction->text != NULL)
			pfree(transaction->text);
		transaction->text = NULL;
		return;
	}
	transaction->text = transaction->text == NULL ? palloc(length) : repalloc(transaction->text, length);
	memcpy(transaction->text + transaction->text_length, text->text, text->length);
	transaction->text_length = length;
}

static void
add_setting(HeraldReorder *reorder, Transaction *transaction, HeraldWalMessage *message, size_t length)
{
	HeraldWalNotification pattern;
	MemoryContext caller;
	Setting    *setting;

	if (!herald_wal_next(message, &pattern, buffer_for(reorder, length)))
		return;
	caller = MemoryContextSwitchTo(transaction->context);
	setting = palloc(offsetof(Setting, pattern) + pattern.channel_length + 1);
	setting->logged = message->logged;
	memcpy(setting->pattern, pattern.channel, pattern.channel_length + 1);
	transaction->settings = lappend(transaction->settings, setting);
	MemoryContextSwitchTo(caller);
}

/* For the strings of a text. */
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

/* A record about the end of a transaction and its subtransactions. */
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

/* The run of the server that wrote them has ended. */
static void
drop_not_prepared(HeraldReorder *reorder)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	hash_seq_init(&scan, reorder->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (!entry->transaction->is_prepared)
			drop(reorder, entry->xid);	/* the scan allows that for its present entry */
}

static void
drop_older(HeraldReorder *reorder, TransactionId oldest)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	hash_seq_init(&scan, reorder->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (TransactionIdPrecedes(entry->xid, oldest))
			drop(reorder, entry->xid);
}

static HeraldWalNext
next_part(HeraldReorder *reorder)
{
	Transaction *batch = reorder->batch;
	HeraldWalText text = {0};

	if (batch->next_number != 1)
		return HERALD_WAL_NEXT_GONE;	/* a message without its last part */
	if (batch->text != NULL)
	{
		text.text = batch->text + reorder->offset;
		text.length = batch->lengths[reorder->parts_read];
		reorder->offset += text.length;
		if (!is_expected_part(reorder, &text))
			return HERALD_WAL_NEXT_GONE;
		reorder->is_last_part = reorder->parts_read + 1 == batch->count;
	}
	else
	{
		HeraldWalNext result = read_part_again(reorder, &text);

		if (result != HERALD_WAL_NEXT_NOTIFICATION)
			return result;
		reorder->is_last_part = herald_wal_reader_record(reorder->again)->ReadRecPtr == batch->last_part;
	}
	reorder->parts_read++;
	reorder->next_number = reorder->message.is_last ? 1 : reorder->message.part + 1;
	(void) buffer_for(reorder, text.length);
	return HERALD_WAL_NEXT_NOTIFICATION;
}

/* The part's record is known; or it is the next one of this transaction. */
static HeraldWalNext
read_part_again(HeraldReorder *reorder, HeraldWalText *text)
{
	Transaction *batch = reorder->batch;
	HeraldWalReader *reader = reorder->again;

	if (!batch->lacks_parts)
		herald_wal_reader_seek(reader, batch->parts[reorder->parts_read]);
	for (;;)
	{
		HeraldWalRead result = herald_wal_reader_next(reader);
		XLogReaderState *record = herald_wal_reader_record(reader);

		CHECK_FOR_INTERRUPTS();
		if (result != HERALD_WAL_READ_RECORD)
			return HERALD_WAL_NEXT_GONE;
		if (XLogRecGetXid(record) == batch->xid &&
			herald_wal_origin_check(record, text) == HERALD_WAL_OURS && is_expected_part(reorder, text))
			return HERALD_WAL_NEXT_NOTIFICATION;
		if (!batch->lacks_parts || record->ReadRecPtr >= batch->last_part)
			return HERALD_WAL_NEXT_GONE;
	}
}

/* Reads its head. */
static bool
is_expected_part(HeraldReorder *reorder, const HeraldWalText *text)
{
	return herald_wal_scan(text->text, text->length, &reorder->message) == HERALD_WAL_VALID &&
		reorder->message.kind == HERALD_WAL_NOTIFICATIONS &&
		reorder->message.run == reorder->batch->run &&
		reorder->message.part == reorder->next_number;
}
