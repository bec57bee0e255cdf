/*-------------------------------------------------------------------------
 *
 * wal_source.c
 *	  The logged notifications that a cursor reads from the WAL, up to a cut, before it reads the queue.
 *
 * For each transaction, the temporary file has a header, followed by the transaction's entries.  Entries have the same
 * form as in the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "storage/buffile.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/entry.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/suppress_messages.h"
#include "core/wal_history.h"
#include "notify/cursor/wal_source.h"
#include "notify/settings/channel_settings.h"
#include "notify/wal/reorder.h"
#include "notify/wal/wal_reader.h"

/* A transaction's header in the temporary file; the transaction's entries follow the header. */
typedef struct PastTransaction
{
	uint64		bytes;			/* total size of the transaction's entries */
	TimestampTz committed_at;
	HeraldCommitId commit;
	HeraldSender sender;
	HeraldWalAnchor anchor;		/* the latest anchor that is before the
								 * commit, and at which no transaction with
								 * messages was open; wal 0: there is no such
								 * anchor */
} PastTransaction;

typedef struct FileOffset
{
	int			number;
	off_t		offset;
} FileOffset;

struct HeraldWalSource
{
	MemoryContext memory;
	bool		outlives_transaction;
	BufFile    *file;
	FileOffset	end;			/* the place in `file` where the last
								 * transaction ends */
	HeraldToken token;
	HeraldCut	cut;
	List	   *changed;		/* patterns of this database's settings that
								 * have changed after `token`, according to
								 * the WAL */

	/* The state of herald_wal_source_next(). */
	bool		is_rewound;
	bool		in_transaction;
	PastTransaction now;		/* the header of the current transaction */
	uint64		bytes_left;		/* size of the current transaction's entries
								 * that have not been returned yet */
	HeraldReceipt received;		/* the receipt of a client that has received
								 * all transactions whose ends were returned */
	char	   *buffer;
	size_t		buffer_size;
};

/* The state of herald_wal_source_read(). */
typedef struct WalReading
{
	HeraldWalSource *source;
	HeraldWalHistory history;
	HeraldReorder *reorder;
	HeraldListensTo wants;
	uint32		wanted_max;
	uint32		wanted;			/* number of notifications so far for which
								 * `wants` has returned true */
	HeraldWalAnchor anchor;		/* the latest anchor so far at which no
								 * transaction with messages was open; wal 0:
								 * there is no such anchor */
} WalReading;

static const FileOffset beginning = {0};

static bool close_file(void *file);
static FileOffset tell(const HeraldWalSource *source);
static void seek(const HeraldWalSource *source, FileOffset place);
static HeraldGone read_wal(WalReading *reading);
static HeraldGone take_event(WalReading *reading, const HeraldWalEvent *event);
static bool has_enough(const WalReading *reading);
static HeraldGone gone_from_wal(const char *text);
static HeraldGone write_batch(WalReading *reading, const HeraldWalEvent *event);
static void note_change(WalReading *reading, const char *pattern);
static void write_entry(WalReading *reading, const HeraldWalNotification *notification, uint64 *bytes);
static char *room(HeraldWalSource *source, size_t size);
static void read_exactly(HeraldWalSource *source, void *to, size_t length);
static void end_of_transaction(HeraldWalSource *source, HeraldPast *past);


HeraldWalSource *
herald_wal_source_open(MemoryContext parent, bool outlives_transaction)
{
	MemoryContext memory = AllocSetContextCreate(parent, "pg_herald cursor", ALLOCSET_DEFAULT_SIZES);
	HeraldWalSource *source = MemoryContextAllocZero(memory, sizeof(HeraldWalSource));

	source->memory = memory;
	source->outlives_transaction = outlives_transaction;
	return source;
}

void
herald_wal_source_close(HeraldWalSource *source)
{
	/*
	 * BufFileClose() throws if it cannot write data that an earlier error has
	 * left in the file's buffer.  Do not pass this error on: the server
	 * closes the file at the end of the session at the latest.
	 */
	if (source->file != NULL)
		(void) herald_with_messages_suppressed(close_file, source->file);
	MemoryContextDelete(source->memory);
}

static bool
close_file(void *file)
{
	BufFileClose(file);
	return true;
}

const HeraldCut *
herald_wal_source_cut(const HeraldWalSource *source)
{
	return &source->cut;
}

bool
herald_wal_source_is_after(const HeraldWalSource *source, const HeraldToken *token)
{
	const HeraldToken *own = &source->token;

	return own->run == token->run && own->moved == token->moved && own->place == token->place &&
		own->bypasses == token->bypasses && memcmp(&own->wal, &token->wal, sizeof(own->wal)) == 0;
}

HeraldGone
herald_wal_source_read(HeraldWalSource *source, const HeraldToken *token, const HeraldCut *cut,
					   HeraldListensTo wants, uint32 wanted_max, HeraldReceipt *end)
{
	MemoryContext caller = MemoryContextSwitchTo(source->memory);
	MemoryContext memory = AllocSetContextCreate(caller, "pg_herald reading", ALLOCSET_DEFAULT_SIZES);
	WalReading	reading = {.source = source,.wants = wants,.wanted_max = wanted_max};
	HeraldGone	gone;

	Assert(source->file == NULL);
	source->file = BufFileCreateTemp(source->outlives_transaction);
	source->token = *token;
	source->received = token->wal;
	source->cut = *cut;
	reading.history.run = token->run;
	reading.history.place = token->place;
	reading.history.received = reading.history.receipt = token->wal;
	reading.history.own_run = herald_control->server_run;
	reading.history.cut = cut->place;

	MemoryContextSwitchTo(memory);
	gone = read_wal(&reading);
	herald_wal_history_end(&reading.history, cut->in_order);
	*end = reading.history.receipt;
	source->end = tell(source);

	/*
	 * Write the rest of the file's buffer now, since an error must be
	 * reported, and herald_wal_source_close() reports none.  BufFileRead()
	 * writes the buffer first, even if no bytes are to be read.
	 */
	read_exactly(source, NULL, 0);
	MemoryContextSwitchTo(caller);
	if (gone.text != NULL)
		gone.text = pstrdup(gone.text);
	MemoryContextDelete(memory);
	return gone;
}

static FileOffset
tell(const HeraldWalSource *source)
{
	FileOffset	place;

	BufFileTell(source->file, &place.number, &place.offset);
	return place;
}

static void
seek(const HeraldWalSource *source, FileOffset place)
{
	if (BufFileSeek(source->file, place.number, place.offset, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in a temporary file")));
}

/*
 * Read the WAL from the anchor in the client's receipt to the cut, or until has_enough() is true.  Returns the reason
 * if the client cannot resume.
 */
static HeraldGone
read_wal(WalReading *reading)
{
	const HeraldReceipt *received = &reading->history.received;
	XLogRecPtr	from = received->from.wal;
	XLogRecPtr	to = reading->source->cut.wal;
	HeraldWalReader *reader;

	if (from == InvalidXLogRecPtr)
		return herald_gone_history("the position does not say where to read the WAL");
	if (from >= to)
		return herald_gone_history("its anchor is not here");
	if (to - from > (uint64) herald_resume_wal_size_mb * 1024 * 1024)
		return gone_from_wal(psprintf("it is longer than herald.resume_wal_size (%d MB)", herald_resume_wal_size_mb));

	/*
	 * [X3] If the WAL on this server is not the WAL of the client's position,
	 * `from` may be inside a record, where a user's data could be taken for a
	 * record.  So begin reading at the first record that begins in the page
	 * of `from`; the loop below skips the records before `from`.
	 */
	reader = herald_wal_reader_open(from - from % XLOG_BLCKSZ);
	herald_wal_reader_seek_after(reader, from - from % XLOG_BLCKSZ);
	reading->reorder = herald_reorder_begin(HERALD_WAL_UNKNOWN);
	while (herald_wal_reader_position(reader) < to && !has_enough(reading))
	{
		HeraldWalEvent event;
		HeraldWalRead read;

		CHECK_FOR_INTERRUPTS();
		read = herald_wal_reader_next(reader);
		if (read == HERALD_WAL_READ_GONE)
			return gone_from_wal(herald_wal_reader_reason(reader));
		Assert(read == HERALD_WAL_READ_RECORD || herald_wal_readable_to() >= to);
		if (read == HERALD_WAL_READ_END || herald_wal_reader_position(reader) > to)
			break;
		if (herald_wal_reader_record(reader)->ReadRecPtr < from)
			continue;
		herald_reorder_take(reading->reorder, herald_wal_reader_record(reader));
		while (herald_reorder_event(reading->reorder, &event))
		{
			HeraldGone	gone = take_event(reading, &event);

			if (herald_is_gone(gone))
				return gone;
		}
		if (!reading->history.has_witness && received->furthest.end == InvalidXLogRecPtr)
			break;				/* the receipt has no commit as the witness,
								 * so the first record at `from` or later must
								 * be the client's anchor, but it is not */
	}
	herald_reorder_end(reading->reorder);
	herald_wal_reader_close(reader);
	if (reading->history.has_witness)
		return herald_gone(HERALD_GONE_NOTHING);
	if (received->furthest.end != InvalidXLogRecPtr)
		return herald_gone_history("the last transaction that was received is not here");
	return herald_gone_history(received->from.run == 0 ? "that server had not come to an anchor yet" :
							   "its anchor is not here");
}

/* Has reading met the witness, and more than wanted_max notifications for which `wants` returns true? */
static bool
has_enough(const WalReading *reading)
{
	return reading->wanted > reading->wanted_max && reading->history.has_witness;
}

static HeraldGone
gone_from_wal(const char *text)
{
	HeraldGone	gone = {.kind = HERALD_GONE_WAL,.text = text};

	return gone;
}

static HeraldGone
take_event(WalReading *reading, const HeraldWalEvent *event)
{
	HeraldWalHistory *history = &reading->history;
	bool		is_ours = event->database == MyDatabaseId;

	switch (event->kind)
	{
		case HERALD_WAL_EVENT_ANCHOR:
			herald_wal_history_anchor(history, event->anchor);
			if (herald_reorder_oldest(reading->reorder) == InvalidXLogRecPtr)
				reading->anchor = event->anchor;
			break;
		case HERALD_WAL_EVENT_SETTING:
			if (is_ours && herald_wal_history_concerns(history, event->commit.end))
				note_change(reading, event->pattern);
			break;
		case HERALD_WAL_EVENT_BATCH:
			switch (herald_wal_history_commit(history, event->commit, is_ours))
			{
				case HERALD_WAL_PASS_OVER:
					break;
				case HERALD_WAL_DELIVER:
					return write_batch(reading, event);
				case HERALD_WAL_UNDECIDED:
					return herald_gone_history("a transaction before it is still committing");
			}
			break;
		case HERALD_WAL_EVENT_GAP:

			/*
			 * [X4] Notifications that the client has not received may be
			 * missing from the WAL, so the client cannot resume.
			 */
			if ((is_ours || event->database == InvalidOid) && herald_wal_history_concerns(history, event->commit.end))
				return herald_gone_history(event->reason);
			break;
	}
	return herald_gone(HERALD_GONE_NOTHING);
}

static HeraldGone
write_batch(WalReading *reading, const HeraldWalEvent *event)
{
	HeraldWalSource *source = reading->source;
	PastTransaction header = {
		.committed_at = event->committed_at,
		.commit = event->commit,
		.sender = event->sender,
		.anchor = reading->anchor,
	};
	HeraldWalNotification notification;
	FileOffset	begin = tell(source);
	FileOffset	end;

	BufFileWrite(source->file, &header, sizeof(header));
	herald_reorder_read_begin(reading->reorder);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (herald_reorder_read(reading->reorder, &notification))
		{
			case HERALD_WAL_NEXT_NOTIFICATION:
				write_entry(reading, &notification, &header.bytes);
				continue;
			case HERALD_WAL_NEXT_END:
				break;
			case HERALD_WAL_NEXT_GONE:
				return gone_from_wal("a part of a transaction's notifications is not there");
		}
		break;
	}

	/* Overwrite the header, now that the total size of the entries is known. */
	end = tell(source);
	seek(source, begin);
	BufFileWrite(source->file, &header, sizeof(header));
	seek(source, end);
	return herald_gone(HERALD_GONE_NOTHING);
}

static void
note_change(WalReading *reading, const char *pattern)
{
	MemoryContext caller = MemoryContextSwitchTo(reading->source->memory);

	reading->source->changed = lappend(reading->source->changed, pstrdup(pattern));
	MemoryContextSwitchTo(caller);
}

static void
write_entry(WalReading *reading, const HeraldWalNotification *notification, uint64 *bytes)
{
	HeraldWalSource *source = reading->source;
	HeraldEntry *entry = (HeraldEntry *) room(source, herald_entry_length(notification->channel_length,
																		  notification->payload_length));

	*bytes += herald_entry_write(entry, notification->channel, notification->channel_length,
								 notification->payload, notification->payload_length);

	/*
	 * Set the sender's pid to 0.  No backend has this pid, so the client does
	 * not take the notification for one of its own.
	 */
	memset(entry->body, 0, HERALD_BODY_PID);
	BufFileWrite(source->file, entry, entry->length);
	if (reading->wants != NULL && reading->wants(entry, 0))
		reading->wanted++;
}

static char *
room(HeraldWalSource *source, size_t size)
{
	if (source->buffer_size < size)
	{
		if (source->buffer != NULL)
			pfree(source->buffer);
		source->buffer_size = Max(size, 16384);
		source->buffer = MemoryContextAllocHuge(source->memory, source->buffer_size);
	}
	return source->buffer;
}

bool
herald_wal_source_covers(const HeraldWalSource *source, const char *channel)
{
	ListCell   *cell;

	foreach(cell, source->changed)
	{
		if (herald_setting_matches(lfirst(cell), channel))
			return false;
	}
	return true;
}

bool
herald_wal_source_next(HeraldWalSource *source, HeraldPast *past)
{
	HeraldEntry head;
	char	   *entry;

	if (!source->is_rewound)
		seek(source, beginning);
	source->is_rewound = true;
	if (source->in_transaction && source->bytes_left == 0)
	{
		source->in_transaction = false;
		end_of_transaction(source, past);
		return true;
	}
	if (!source->in_transaction)
	{
		FileOffset	at = tell(source);

		if (at.number == source->end.number && at.offset == source->end.offset)
			return false;
		read_exactly(source, &source->now, sizeof(source->now));
		source->in_transaction = true;
		source->bytes_left = source->now.bytes;
		if (source->bytes_left == 0)
			return herald_wal_source_next(source, past);
	}
	read_exactly(source, &head, sizeof(head));
	entry = room(source, head.length);
	memcpy(entry, &head, sizeof(head));
	read_exactly(source, entry + sizeof(head), head.length - sizeof(head));
	source->bytes_left -= head.length;
	past->entry = (HeraldEntry *) entry;
	past->committed_at = source->now.committed_at;
	past->sender = source->now.sender;
	return true;
}

static void
read_exactly(HeraldWalSource *source, void *to, size_t length)
{
	if (BufFileRead(source->file, to, length) != length)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read a temporary file")));
}

static void
end_of_transaction(HeraldWalSource *source, HeraldPast *past)
{
	herald_receipt_read(&source->received, source->now.anchor, source->now.commit);
	past->entry = NULL;
	past->committed_at = source->now.committed_at;
}

HeraldReceipt
herald_wal_source_receipt(const HeraldWalSource *source)
{
	return source->received;
}
