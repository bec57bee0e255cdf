/*-------------------------------------------------------------------------
 *
 * assemble.c
 *	  From records of the WAL to the logged notifications of each committed transaction.
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

#include "notify/wal/assemble.h"
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
	uint32		next_number;	/* of its next part; 1: its last one was the last of a message */
	bool		lacks_parts;	/* some were before reading began */
	uint64		place;
	XLogRecPtr *parts;			/* where each begins, unless it lacks some */
	uint32		count;
	uint32		room;
	XLogRecPtr	last_part;
	char	   *text;			/* all parts one after the other; NULL: too long */
	uint32	   *lengths;		/* of each part */
	size_t		text_length;

	List	   *settings;
} Transaction;

typedef struct Entry
{
	TransactionId xid;			/* the key */
	Transaction *transaction;
} Entry;

struct HeraldAssembler
{
	MemoryContext context;
	HTAB	   *open;			/* of Entry */
	HeraldWalCoverage coverage;
	uint64		forged;
	uint64		newer;

	/* What the present record has caused. */
	bool		has_gap;		/* `gap`, before the others */
	HeraldWalEvent gap;
	bool		has_event;		/* `event` */
	HeraldWalEvent event;
	List	   *committed;		/* of Transaction: what is left of them */

	/* Reading a batch's notifications. */
	Transaction *batch;
	HeraldWalReader *again;		/* NULL: not needed yet */
	uint32		parts_read;
	uint32		next_number;	/* of its next part */
	size_t		offset;			/* in its text */
	bool		in_part;
	bool		is_last_part;	/* the part that was read last is the transaction's last one */
	HeraldWalMessage message;
	char	   *buffer;			/* for one part, unescaped */
	size_t		buffer_size;
};

static void forget_committed(HeraldAssembler *assembler);
static void give_back(HeraldAssembler *assembler);
static void take_message(HeraldAssembler *assembler, XLogReaderState *record);
static void step(HeraldAssembler *assembler, XLogReaderState *record, HeraldWalStep step);
static void note_gap(HeraldAssembler *assembler, XLogReaderState *record, Oid database, const char *reason);
static Transaction *find(HeraldAssembler *assembler, TransactionId xid);
static Transaction *find_or_add(HeraldAssembler *assembler, XLogReaderState *record, Oid database, uint64 run);
static void add_part(Transaction *transaction, XLogRecPtr at, const HeraldWalMessage *message,
					 const HeraldWalText *text);
static void keep_text(Transaction *transaction, const HeraldWalText *text);
static void add_setting(HeraldAssembler *assembler, Transaction *transaction, HeraldWalMessage *message,
						size_t length);
static char *buffer_for(HeraldAssembler *assembler, size_t length);
static void drop_buffer(HeraldAssembler *assembler);
static void take_end(HeraldAssembler *assembler, XLogReaderState *record);
static void commit(HeraldAssembler *assembler, TransactionId xid);
static void mark_prepared(HeraldAssembler *assembler, TransactionId xid);
static void drop(HeraldAssembler *assembler, TransactionId xid);
static void drop_not_prepared(HeraldAssembler *assembler);
static void drop_older(HeraldAssembler *assembler, TransactionId oldest);
static HeraldWalNext next_part(HeraldAssembler *assembler);
static HeraldWalNext read_part_again(HeraldAssembler *assembler, HeraldWalText *text);
static bool is_expected_part(HeraldAssembler *assembler, const HeraldWalText *text);


HeraldAssembler *
herald_assembler_begin(HeraldWalCoverage coverage)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_herald assembler",
												  ALLOCSET_DEFAULT_SIZES);
	HeraldAssembler *assembler = MemoryContextAllocZero(context, sizeof(HeraldAssembler));
	HASHCTL		control = {
		.keysize = sizeof(TransactionId),
		.entrysize = sizeof(Entry),
		.hcxt = context,
	};

	assembler->context = context;
	assembler->coverage = coverage;
	assembler->open = hash_create("pg_herald open transactions", 64, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return assembler;
}

void
herald_assembler_end(HeraldAssembler *assembler)
{
	MemoryContextDelete(assembler->context);
}

void
herald_assembler_take(HeraldAssembler *assembler, XLogReaderState *record)
{
	Oid			created;

	forget_committed(assembler);
	if (herald_wal_record_is_commit(record))
		step(assembler, record, HERALD_WAL_COMMIT);
	switch (XLogRecGetRmid(record))
	{
		case RM_LOGICALMSG_ID:
			take_message(assembler, record);
			break;
		case RM_XACT_ID:
			if (hash_get_num_entries(assembler->open) > 0)
				take_end(assembler, record);
			break;
		case RM_XLOG_ID:
			if (!herald_wal_record_ends_run(record))
				break;
			drop_not_prepared(assembler);
			step(assembler, record, HERALD_WAL_BEGINNING);
			break;
		case RM_STANDBY_ID:
			if ((XLogRecGetInfo(record) & ~XLR_INFO_MASK) == XLOG_RUNNING_XACTS)
				drop_older(assembler, ((xl_running_xacts *) XLogRecGetData(record))->oldestRunningXid);
			break;
		case RM_DBASE_ID:
			created = herald_wal_record_created(record);
			if (OidIsValid(created))
				note_gap(assembler, record, created, "the database has been created again");
			break;
		default:
			break;
	}
	give_back(assembler);
}

bool
herald_assembler_event(HeraldAssembler *assembler, HeraldWalEvent *event)
{
	if (assembler->has_gap)
	{
		assembler->has_gap = false;
		*event = assembler->gap;
		return true;
	}
	*event = assembler->event;
	if (assembler->has_event)
	{
		assembler->has_event = false;
		return true;
	}
	while (assembler->committed != NIL)
	{
		Transaction *transaction = linitial(assembler->committed);

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
		if (transaction->count > 0 && assembler->batch != transaction)
		{
			event->kind = HERALD_WAL_EVENT_BATCH;
			event->commit.run = transaction->run;
			event->commit.place = transaction->place;
			assembler->batch = transaction;
			return true;
		}
		assembler->batch = NULL;
		assembler->committed = list_delete_first(assembler->committed);
		MemoryContextDelete(transaction->context);
		give_back(assembler);
	}
	return false;
}

void
herald_assembler_read_begin(HeraldAssembler *assembler)
{
	Assert(assembler->batch != NULL);
	assembler->parts_read = 0;
	assembler->next_number = 1;
	assembler->offset = 0;
	assembler->in_part = false;
	assembler->is_last_part = false;
	if (assembler->batch->text == NULL)
	{
		if (assembler->again == NULL)
		{
			MemoryContext caller = MemoryContextSwitchTo(assembler->context);

			assembler->again = herald_wal_reader_open(assembler->batch->first);
			MemoryContextSwitchTo(caller);
		}
		herald_wal_reader_seek(assembler->again, assembler->batch->first);
	}
}

HeraldWalNext
herald_assembler_read(HeraldAssembler *assembler, HeraldWalNotification *notification)
{
	while (!assembler->in_part ||
		   !herald_wal_next(&assembler->message, notification, assembler->buffer))
	{
		HeraldWalNext result;

		assembler->in_part = false;
		if (assembler->is_last_part)
			return HERALD_WAL_NEXT_END;
		result = next_part(assembler);
		if (result != HERALD_WAL_NEXT_NOTIFICATION)
			return result;
		assembler->in_part = true;
	}
	return HERALD_WAL_NEXT_NOTIFICATION;
}

XLogRecPtr
herald_assembler_oldest(HeraldAssembler *assembler)
{
	XLogRecPtr	oldest = InvalidXLogRecPtr;
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	if (hash_get_num_entries(assembler->open) == 0)
		return oldest;
	hash_seq_init(&scan, assembler->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (oldest == InvalidXLogRecPtr || entry->transaction->first < oldest)
			oldest = entry->transaction->first;
	return oldest;
}

HeraldWalCoverage
herald_assembler_coverage(const HeraldAssembler *assembler)
{
	return assembler->coverage;
}

uint64
herald_assembler_forged(const HeraldAssembler *assembler)
{
	return assembler->forged;
}

uint64
herald_assembler_newer(const HeraldAssembler *assembler)
{
	return assembler->newer;
}

/* Free what the record before has left. */
static void
forget_committed(HeraldAssembler *assembler)
{
	ListCell   *cell;

	assembler->has_gap = assembler->has_event = false;
	assembler->batch = NULL;
	if (assembler->committed == NIL)
		return;
	foreach(cell, assembler->committed)
		MemoryContextDelete(((Transaction *) lfirst(cell))->context);
	list_free(assembler->committed);
	assembler->committed = NIL;
}

/* What only a long transaction needs: the next one may be far away. */
static void
give_back(HeraldAssembler *assembler)
{
	if (assembler->again != NULL)
		herald_wal_reader_close(assembler->again);
	assembler->again = NULL;
	if (assembler->buffer_size > TEXT_KEPT)
		drop_buffer(assembler);
}

static void
take_message(HeraldAssembler *assembler, XLogReaderState *record)
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
		assembler->newer++;
		step(assembler, record, HERALD_WAL_MESSAGE);
		note_gap(assembler, record, text.database, "a later version of pg_herald has written them");
		return;
	}
	if (result == HERALD_WAL_INVALID || text.transactional != (message.kind != HERALD_WAL_ANCHOR) ||
		(text.transactional && !TransactionIdIsValid(XLogRecGetXid(record))))
	{
		assembler->forged++;
		return;
	}

	step(assembler, record, HERALD_WAL_MESSAGE);
	switch (message.kind)
	{
		case HERALD_WAL_NOTIFICATIONS:
			transaction = find_or_add(assembler, record, text.database, message.run);
			add_part(transaction, record->ReadRecPtr, &message, &text);
			break;
		case HERALD_WAL_SETTING:
			add_setting(assembler, find_or_add(assembler, record, text.database, message.run), &message,
						text.length);
			break;
		case HERALD_WAL_ANCHOR:
			assembler->event = (HeraldWalEvent) {
				.kind = HERALD_WAL_EVENT_ANCHOR,
				.anchor = {record->ReadRecPtr, message.run}
			};
			assembler->has_event = true;
			break;
	}
}

/* A step of the server's run. */
static void
step(HeraldAssembler *assembler, XLogReaderState *record, HeraldWalStep step)
{
	bool		is_gap;

	assembler->coverage = herald_wal_coverage_next(assembler->coverage, step, &is_gap);
	if (is_gap)
		note_gap(assembler, record, InvalidOid, "the server may have run without pg_herald");
}

static void
note_gap(HeraldAssembler *assembler, XLogReaderState *record, Oid database, const char *reason)
{
	if (assembler->has_gap)
		return;					/* which is one of all databases */
	assembler->gap = (HeraldWalEvent) {
		.kind = HERALD_WAL_EVENT_GAP,
		.database = database,
		.commit.end = record->EndRecPtr,
		.is_creation = OidIsValid(herald_wal_record_created(record)),
		.reason = reason
	};
	assembler->has_gap = true;
}

static Transaction *
find(HeraldAssembler *assembler, TransactionId xid)
{
	Entry	   *entry = hash_search(assembler->open, &xid, HASH_FIND, NULL);

	return entry ? entry->transaction : NULL;
}

static Transaction *
find_or_add(HeraldAssembler *assembler, XLogReaderState *record, Oid database, uint64 run)
{
	TransactionId xid = XLogRecGetXid(record);
	Transaction *transaction = find(assembler, xid);
	MemoryContext context;
	Entry	   *entry;

	if (transaction != NULL)
		return transaction;

	context = AllocSetContextCreate(assembler->context, "pg_herald transaction", ALLOCSET_SMALL_SIZES);
	transaction = MemoryContextAllocZero(context, sizeof(Transaction));
	transaction->context = context;
	transaction->xid = xid;
	transaction->database = database;
	transaction->run = run;
	transaction->first = record->ReadRecPtr;
	transaction->next_number = 1;
	entry = hash_search(assembler->open, &xid, HASH_ENTER, NULL);
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
add_setting(HeraldAssembler *assembler, Transaction *transaction, HeraldWalMessage *message, size_t length)
{
	HeraldWalNotification pattern;
	MemoryContext caller;
	Setting    *setting;

	if (!herald_wal_next(message, &pattern, buffer_for(assembler, length)))
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
buffer_for(HeraldAssembler *assembler, size_t length)
{
	if (length > assembler->buffer_size)
	{
		drop_buffer(assembler);
		assembler->buffer = MemoryContextAllocHuge(assembler->context, length);
		assembler->buffer_size = length;
	}
	return assembler->buffer;
}

static void
drop_buffer(HeraldAssembler *assembler)
{
	if (assembler->buffer != NULL)
		pfree(assembler->buffer);
	assembler->buffer = NULL;
	assembler->buffer_size = 0;
}

/* A record about the end of a transaction and its subtransactions. */
static void
take_end(HeraldAssembler *assembler, XLogReaderState *record)
{
	void		(*take) (HeraldAssembler *assembler, TransactionId xid);
	HeraldWalEnd end = herald_wal_record_end(record);

	switch (end.kind)
	{
		case HERALD_WAL_END_COMMIT:
			assembler->event = (HeraldWalEvent) {
				.commit.end = record->EndRecPtr,
				.committed_at = end.committed_at
			};
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
		take(assembler, end.subxids[i]);
	take(assembler, end.xid);
}

static void
commit(HeraldAssembler *assembler, TransactionId xid)
{
	Transaction *transaction = find(assembler, xid);
	MemoryContext caller;

	if (transaction == NULL)
		return;
	(void) hash_search(assembler->open, &xid, HASH_REMOVE, NULL);
	caller = MemoryContextSwitchTo(assembler->context);
	assembler->committed = lappend(assembler->committed, transaction);
	MemoryContextSwitchTo(caller);
}

static void
mark_prepared(HeraldAssembler *assembler, TransactionId xid)
{
	Transaction *transaction = find(assembler, xid);

	if (transaction != NULL)
		transaction->is_prepared = true;
}

static void
drop(HeraldAssembler *assembler, TransactionId xid)
{
	Transaction *transaction = find(assembler, xid);

	if (transaction == NULL)
		return;
	(void) hash_search(assembler->open, &xid, HASH_REMOVE, NULL);
	MemoryContextDelete(transaction->context);
}

/* The run of the server that wrote them has ended. */
static void
drop_not_prepared(HeraldAssembler *assembler)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	hash_seq_init(&scan, assembler->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (!entry->transaction->is_prepared)
			drop(assembler, entry->xid);	/* the scan allows that for its present entry */
}

static void
drop_older(HeraldAssembler *assembler, TransactionId oldest)
{
	HASH_SEQ_STATUS scan;
	Entry	   *entry;

	hash_seq_init(&scan, assembler->open);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (TransactionIdPrecedes(entry->xid, oldest))
			drop(assembler, entry->xid);
}

static HeraldWalNext
next_part(HeraldAssembler *assembler)
{
	Transaction *batch = assembler->batch;
	HeraldWalText text = {0};

	if (batch->next_number != 1)
		return HERALD_WAL_NEXT_GONE;	/* a message without its last part */
	if (batch->text != NULL)
	{
		text.text = batch->text + assembler->offset;
		text.length = batch->lengths[assembler->parts_read];
		assembler->offset += text.length;
		if (!is_expected_part(assembler, &text))
			return HERALD_WAL_NEXT_GONE;
		assembler->is_last_part = assembler->parts_read + 1 == batch->count;
	}
	else
	{
		HeraldWalNext result = read_part_again(assembler, &text);

		if (result != HERALD_WAL_NEXT_NOTIFICATION)
			return result;
		assembler->is_last_part = herald_wal_reader_record(assembler->again)->ReadRecPtr == batch->last_part;
	}
	assembler->parts_read++;
	assembler->next_number = assembler->message.is_last ? 1 : assembler->message.part + 1;
	(void) buffer_for(assembler, text.length);
	return HERALD_WAL_NEXT_NOTIFICATION;
}

/* The part's record is known; or it is the next one of this transaction. */
static HeraldWalNext
read_part_again(HeraldAssembler *assembler, HeraldWalText *text)
{
	Transaction *batch = assembler->batch;
	HeraldWalReader *reader = assembler->again;

	if (!batch->lacks_parts)
		herald_wal_reader_seek(reader, batch->parts[assembler->parts_read]);
	for (;;)
	{
		HeraldWalRead result = herald_wal_reader_next(reader);
		XLogReaderState *record = herald_wal_reader_record(reader);

		CHECK_FOR_INTERRUPTS();
		if (result != HERALD_WAL_READ_RECORD)
			return HERALD_WAL_NEXT_GONE;
		if (XLogRecGetXid(record) == batch->xid &&
			herald_wal_origin_check(record, text) == HERALD_WAL_OURS && is_expected_part(assembler, text))
			return HERALD_WAL_NEXT_NOTIFICATION;
		if (!batch->lacks_parts || record->ReadRecPtr >= batch->last_part)
			return HERALD_WAL_NEXT_GONE;
	}
}

/* Reads its head. */
static bool
is_expected_part(HeraldAssembler *assembler, const HeraldWalText *text)
{
	return herald_wal_scan(text->text, text->length, &assembler->message) == HERALD_WAL_VALID &&
		assembler->message.kind == HERALD_WAL_NOTIFICATIONS &&
		assembler->message.run == assembler->batch->run &&
		assembler->message.part == assembler->next_number;
}
