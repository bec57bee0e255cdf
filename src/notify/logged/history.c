/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Logged notifications that a session reads from the WAL.
 *
 * The file has for each transaction a header, then its entries in the form of the queue's.
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
#include "notify/channels/channel_settings.h"
#include "notify/logged/assemble.h"
#include "notify/logged/history.h"
#include "notify/logged/mark.h"
#include "notify/logged/wal_reader.h"

/* In the file, before a transaction's entries. */
typedef struct PastTransaction
{
	uint64		bytes;			/* of the entries that follow */
	TimestampTz committed_at;
	XLogRecPtr	commit_end;
	XLogRecPtr	anchor;			/* no transaction was open at it that ends here or later; 0: none is known */
	uint64		run;
	uint64		place;
} PastTransaction;

typedef struct FilePlace
{
	int			number;
	off_t		offset;
} FilePlace;

struct HeraldHistory
{
	MemoryContext memory;
	bool		outlives_transaction;
	BufFile    *file;
	FilePlace	end;			/* of what is complete */
	bool		is_read;
	HeraldToken token;
	HeraldCut	cut;
	HeraldWalMark mark;			/* of a client that has received all of it */
	List	   *gaps;			/* patterns of channels that it does not cover */

	/* Reading. */
	bool		is_rewound;
	bool		in_transaction;
	PastTransaction now;		/* the transaction that is being read */
	uint64		bytes_left;		/* of its entries */
	HeraldToken received;		/* of a client that has received what was read of the file */
	char	   *buffer;
	size_t		buffer_size;
};

/* The state of herald_history_read(). */
typedef struct Reading
{
	HeraldHistory *history;
	const HeraldToken *token;
	HeraldAssembler *assembler;
	HeraldListensTo wants;
	uint32		wanted_max;
	uint32		wanted;			/* notifications that are, up to now */
	XLogRecPtr	anchor;			/* the latest one at which no transaction was open */
	bool		has_witness;	/* the furthest commit has been met; if there is none, the anchor */
	bool		has_left;		/* a commit has been left to the queue */
} Reading;

/* Why the last history could not be read. */
static char reason[256];

static bool close_file(void *file);
static bool is_same(const HeraldToken *one, const HeraldToken *other);
static FilePlace tell(const HeraldHistory *history);
static void seek(const HeraldHistory *history, FilePlace place);
static HeraldGone read_wal(Reading *reading);
static HeraldGone lost(const char *why);
static HeraldGone take_event(Reading *reading, const HeraldWalEvent *event);
static HeraldGone take_batch(Reading *reading, const HeraldWalEvent *event);
static HeraldGone write_batch(Reading *reading, const HeraldWalEvent *event);
static bool is_left_to_queue(const HeraldCut *cut, const HeraldWalEvent *event);
static void add_gap(Reading *reading, const char *pattern);
static void write_entry(Reading *reading, const HeraldWalNotification *notification, uint64 *bytes);
static char *room(HeraldHistory *history, size_t size);
static void read_exactly(HeraldHistory *history, void *to, size_t length);
static void end_of_transaction(HeraldHistory *history, HeraldPast *past);


HeraldHistory *
herald_history_open(MemoryContext parent, bool outlives_transaction)
{
	MemoryContext memory = AllocSetContextCreate(parent, "pg_herald history", ALLOCSET_DEFAULT_SIZES);
	HeraldHistory *history = MemoryContextAllocZero(memory, sizeof(HeraldHistory));

	history->memory = memory;
	history->outlives_transaction = outlives_transaction;
	return history;
}

void
herald_history_close(HeraldHistory *history)
{
	/* It throws an error if one before has left something to write.  Then the file is closed when the session ends. */
	if (history->file != NULL)
		(void) herald_with_messages_suppressed(close_file, history->file);
	MemoryContextDelete(history->memory);
}

static bool
close_file(void *file)
{
	BufFileClose(file);
	return true;
}

HeraldGone
herald_history_find(const HeraldHistory *history, const HeraldToken *token, HeraldCut *cut, bool *is_read)
{
	*is_read = history->is_read;
	if (!history->is_read)
		return HERALD_GONE_NOTHING;
	*cut = history->cut;
	return is_same(&history->token, token) ? HERALD_GONE_NOTHING :
		lost("this session resumes other channels from another position");
}

static bool
is_same(const HeraldToken *one, const HeraldToken *other)
{
	return one->run == other->run && one->moved == other->moved && one->place == other->place &&
		one->bypasses == other->bypasses && memcmp(&one->wal, &other->wal, sizeof(one->wal)) == 0;
}

HeraldGone
herald_history_read(HeraldHistory *history, const HeraldToken *token, const HeraldCut *cut,
					HeraldListensTo wants, uint32 wanted_max)
{
	MemoryContext caller = MemoryContextSwitchTo(history->memory);
	MemoryContext memory = AllocSetContextCreate(caller, "pg_herald reading", ALLOCSET_DEFAULT_SIZES);
	Reading		reading = {.history = history,.token = token,.wants = wants,.wanted_max = wanted_max};
	HeraldGone	result;

	Assert(!history->is_read);
	if (history->file == NULL)
		history->file = BufFileCreateTemp(history->outlives_transaction);
	history->token = history->received = *token;
	history->cut = *cut;
	history->mark = token->wal;
	history->gaps = NIL;

	/* What an attempt that failed has written is overwritten. */
	seek(history, (FilePlace) {0});
	MemoryContextSwitchTo(memory);
	result = read_wal(&reading);
	if (cut->in_order)
		history->mark.done = Max(token->wal.done, history->mark.furthest);
	history->end = tell(history);
	history->is_read = result == HERALD_GONE_NOTHING;

	/* Closing writes what the buffer still has; then it would be too late for an error. */
	read_exactly(history, NULL, 0);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(memory);
	return result;
}

static FilePlace
tell(const HeraldHistory *history)
{
	FilePlace	place;

	BufFileTell(history->file, &place.number, &place.offset);
	return place;
}

static void
seek(const HeraldHistory *history, FilePlace place)
{
	if (BufFileSeek(history->file, place.number, place.offset, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in a temporary file")));
}

/* Read from the anchor to the cut. */
static HeraldGone
read_wal(Reading *reading)
{
	XLogRecPtr	from = reading->token->wal.from;
	XLogRecPtr	to = reading->history->cut.wal;
	HeraldWalReader *reader;

	if (from == InvalidXLogRecPtr)
		return lost("the position does not say where to read the WAL");
	if (from >= to)
		return lost("its anchor is not here");
	if (to - from > (uint64) herald_resume_wal_size_mb * 1024 * 1024)
	{
		snprintf(reason, sizeof(reason), "it is longer than herald.resume_wal_size (%d MB)", herald_resume_wal_size_mb);
		return HERALD_GONE_WAL;
	}

	/* In another history a user's bytes may be at that place: so begin where a record certainly does. */
	reader = herald_wal_reader_open(from - from % XLOG_BLCKSZ);
	herald_wal_reader_seek_after(reader, from - from % XLOG_BLCKSZ);
	reading->assembler = herald_assembler_begin(HERALD_WAL_UNKNOWN);
	while (herald_wal_reader_position(reader) < to && !(reading->wanted > reading->wanted_max && reading->has_witness))
	{
		HeraldWalEvent event;
		HeraldWalRead read;

		CHECK_FOR_INTERRUPTS();
		read = herald_wal_reader_next(reader);
		if (read == HERALD_WAL_READ_GONE)
		{
			strlcpy(reason, herald_wal_reader_reason(reader), sizeof(reason));
			return HERALD_GONE_WAL;
		}
		Assert(read == HERALD_WAL_READ_RECORD || herald_wal_readable_to() >= to);
		if (read == HERALD_WAL_READ_END || herald_wal_reader_position(reader) > to)
			break;
		if (herald_wal_reader_record(reader)->ReadRecPtr < from)
			continue;
		herald_assembler_take(reading->assembler, herald_wal_reader_record(reader));
		while (herald_assembler_event(reading->assembler, &event))
		{
			HeraldGone	result = take_event(reading, &event);

			if (result != HERALD_GONE_NOTHING)
				return result;
		}
		if (!reading->has_witness && reading->token->wal.furthest == InvalidXLogRecPtr)
			break;				/* it would have been the first */
	}
	herald_assembler_end(reading->assembler);
	herald_wal_reader_close(reader);
	if (reading->has_witness)
		return HERALD_GONE_NOTHING;
	if (reading->token->wal.furthest != InvalidXLogRecPtr)
		return lost("the last transaction that was received is not here");
	return lost(reading->token->wal.witness_run == 0 ? "that server had not come to an anchor yet" :
				"its anchor is not here");
}

static HeraldGone
lost(const char *why)
{
	strlcpy(reason, why, sizeof(reason));
	return HERALD_GONE_HISTORY;
}

const char *
herald_history_reason(void)
{
	return reason;
}

static HeraldGone
take_event(Reading *reading, const HeraldWalEvent *event)
{
	const HeraldWalMark *mark = &reading->token->wal;

	switch (event->kind)
	{
		case HERALD_WAL_EVENT_ANCHOR:
			if (event->wal == mark->from && event->run == mark->witness_run && mark->furthest == InvalidXLogRecPtr)
				reading->has_witness = true;
			if (herald_assembler_oldest(reading->assembler) == InvalidXLogRecPtr)
				reading->anchor = event->wal;
			break;
		case HERALD_WAL_EVENT_SETTING:
			if (event->database == MyDatabaseId && event->commit_end > mark->done)
				add_gap(reading, event->pattern);
			break;
		case HERALD_WAL_EVENT_BATCH:
			return take_batch(reading, event);
		case HERALD_WAL_EVENT_GAP:
			if (event->commit_end > mark->done && (event->database == InvalidOid || event->database == MyDatabaseId))
				return lost(event->reason);
			break;
	}
	return HERALD_GONE_NOTHING;
}

static HeraldGone
take_batch(Reading *reading, const HeraldWalEvent *event)
{
	HeraldWalMark *mark = &reading->history->mark;
	const HeraldToken *token = reading->token;

	if (event->commit_end == token->wal.furthest && event->run == token->wal.witness_run &&
		event->place == token->wal.witness_place)
		reading->has_witness = true;
	if (is_left_to_queue(&reading->history->cut, event))
	{
		reading->has_left = true;
		return event->commit_end <= Max(token->wal.done, token->wal.furthest) ?
			lost("a transaction before it is still committing") : HERALD_GONE_NOTHING;
	}
	if (event->commit_end > mark->furthest)
	{
		mark->furthest = event->commit_end;
		mark->witness_run = event->run;
		mark->witness_place = event->place;
	}
	if (event->database != MyDatabaseId || event->commit_end <= token->wal.done)
		return HERALD_GONE_NOTHING;

	if (event->run == token->run && event->place < token->place)
		return HERALD_GONE_NOTHING;

	/* No position could say that this one has been received, and the one that is left has not. */
	if (reading->has_left)
		return lost("a transaction before it is still committing");
	return write_batch(reading, event);
}

/* Does it have its place in this server's queue, at the cut or beyond? */
static bool
is_left_to_queue(const HeraldCut *cut, const HeraldWalEvent *event)
{
	return event->run == herald_control->server_run && event->place >= cut->place;
}

static HeraldGone
write_batch(Reading *reading, const HeraldWalEvent *event)
{
	HeraldHistory *history = reading->history;
	PastTransaction header = {
		.committed_at = event->committed_at,
		.commit_end = event->commit_end,
		.anchor = reading->anchor,
		.run = event->run,
		.place = event->place,
	};
	HeraldWalNotification notification;
	FilePlace	begin = tell(history);
	FilePlace	end;

	BufFileWrite(history->file, &header, sizeof(header));
	herald_assembler_read_begin(reading->assembler);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		switch (herald_assembler_read(reading->assembler, &notification))
		{
			case HERALD_WAL_NEXT_NOTIFICATION:
				write_entry(reading, &notification, &header.bytes);
				continue;
			case HERALD_WAL_NEXT_END:
				break;
			case HERALD_WAL_NEXT_GONE:
				strlcpy(reason, "a part of a transaction's notifications is not there", sizeof(reason));
				return HERALD_GONE_WAL;
		}
		break;
	}

	/* Now the header's number of bytes is known. */
	end = tell(history);
	seek(history, begin);
	BufFileWrite(history->file, &header, sizeof(header));
	seek(history, end);
	return HERALD_GONE_NOTHING;
}

static void
add_gap(Reading *reading, const char *pattern)
{
	MemoryContext caller = MemoryContextSwitchTo(reading->history->memory);

	reading->history->gaps = lappend(reading->history->gaps, pstrdup(pattern));
	MemoryContextSwitchTo(caller);
}

static void
write_entry(Reading *reading, const HeraldWalNotification *notification, uint64 *bytes)
{
	HeraldHistory *history = reading->history;
	HeraldEntry *entry = (HeraldEntry *) room(history, herald_entry_length(notification->channel_length,
																		   notification->payload_length));

	*bytes += herald_entry_write(entry, notification->channel, notification->channel_length,
								 notification->payload, notification->payload_length);

	/* The sender's pid: no backend has this one, so the client does not take it for its own. */
	memset(entry->body, 0, HERALD_BODY_PID);
	BufFileWrite(history->file, entry, entry->length);
	if (reading->wants != NULL && reading->wants(entry, 0))
		reading->wanted++;
}

static char *
room(HeraldHistory *history, size_t size)
{
	if (history->buffer_size < size)
	{
		if (history->buffer != NULL)
			pfree(history->buffer);
		history->buffer_size = Max(size, 16384);
		history->buffer = MemoryContextAllocHuge(history->memory, history->buffer_size);
	}
	return history->buffer;
}

bool
herald_history_covers(const HeraldHistory *history, const char *channel)
{
	ListCell   *cell;

	foreach(cell, history->gaps)
	{
		if (herald_setting_matches(lfirst(cell), channel))
			return false;
	}
	return true;
}

bool
herald_history_next(HeraldHistory *history, HeraldPast *past)
{
	HeraldEntry head;
	char	   *entry;

	if (!history->is_read)
		return false;
	if (!history->is_rewound)
		seek(history, (FilePlace) {0});
	history->is_rewound = true;
	if (history->in_transaction && history->bytes_left == 0)
	{
		history->in_transaction = false;
		end_of_transaction(history, past);
		return true;
	}
	if (!history->in_transaction)
	{
		FilePlace	at = tell(history);

		if (at.number == history->end.number && at.offset == history->end.offset)
			return false;
		read_exactly(history, &history->now, sizeof(history->now));
		history->in_transaction = true;
		history->bytes_left = history->now.bytes;
		if (history->bytes_left == 0)
			return herald_history_next(history, past);
	}
	read_exactly(history, &head, sizeof(head));
	entry = room(history, head.length);
	memcpy(entry, &head, sizeof(head));
	read_exactly(history, entry + sizeof(head), head.length - sizeof(head));
	history->bytes_left -= head.length;
	*past = (HeraldPast) {.entry = (HeraldEntry *) entry,.committed_at = history->now.committed_at};
	return true;
}

static void
read_exactly(HeraldHistory *history, void *to, size_t length)
{
	if (BufFileRead(history->file, to, length) != length)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read a temporary file")));
}

static void
end_of_transaction(HeraldHistory *history, HeraldPast *past)
{
	const PastTransaction *now = &history->now;
	HeraldToken *received = &history->received;

	received->moved = true;
	received->wal.from = Max(received->wal.from, now->anchor);
	received->wal.done = now->commit_end;
	if (received->wal.furthest < now->commit_end)
	{
		received->wal.furthest = now->commit_end;
		received->wal.witness_run = now->run;
		received->wal.witness_place = now->place;
	}
	*past = (HeraldPast) {.committed_at = now->committed_at,.after = *received};
}

HeraldWalMark
herald_history_mark(const HeraldHistory *history)
{
	return history->mark;
}

HeraldPosition
herald_history_end(const HeraldHistory *history)
{
	return history->cut.place;
}
