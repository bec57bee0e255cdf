/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Logged notifications that a session reads from the WAL.
 *
 * The file has for each transaction a header, then its entries in the form of the queue's.
 * Sections follow one another.
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

/* What the client of one token has missed. */
typedef struct Section
{
	HeraldToken token;
	HeraldToken received;		/* of a client that has received what has been read of the file */
	HeraldCut	cut;
	HeraldWalMark end;			/* of a client that has received all of it */
	List	   *gaps;			/* patterns of channels that it does not cover */
} Section;

/* In the file, before a transaction's entries. */
typedef struct PastTransaction
{
	uint32		section;
	uint32		left_out;		/* notifications before these, which the client has received */
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
	Section    *sections;
	uint32		used;

	/* Reading. */
	bool		is_rewound;
	bool		in_transaction;
	PastTransaction now;		/* the transaction that is being read */
	uint64		bytes_left;		/* of its entries */
	uint32		read;			/* notifications of it that have been read or left out */
	char	   *buffer;
	size_t		buffer_size;
};

/* The state of herald_history_add(). */
typedef struct Reading
{
	HeraldHistory *history;
	Section    *section;
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
static HeraldGone write_batch(Reading *reading, const HeraldWalEvent *event, uint32 left_out);
static uint32 received_of(const HeraldToken *token, const HeraldWalEvent *event);
static bool is_left_to_queue(const Section *section, const HeraldWalEvent *event);
static void add_gap(Reading *reading, const char *pattern);
static bool is_gap(const Section *section, const char *channel);
static void write_entry(Reading *reading, const HeraldWalNotification *notification, uint64 *bytes);
static char *room(HeraldHistory *history, size_t size);
static void read_exactly(HeraldHistory *history, void *to, size_t length);
static void end_of_transaction(HeraldHistory *history, HeraldPast *past);
static HeraldToken token_within(const HeraldHistory *history);


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

bool
herald_history_find(const HeraldHistory *history, const HeraldToken *token, HeraldCut *cut,
					uint32 *section)
{
	for (uint32 i = 0; i < history->used; i++)
	{
		if (!is_same(&history->sections[i].token, token))
			continue;
		*cut = history->sections[i].cut;
		*section = i + 1;
		return true;
	}
	return false;
}

static bool
is_same(const HeraldToken *one, const HeraldToken *other)
{
	return one->run == other->run && one->moved == other->moved &&
		one->place.position == other->place.position && one->place.offset == other->place.offset &&
		one->wal.from == other->wal.from && one->wal.done == other->wal.done &&
		one->wal.furthest == other->wal.furthest && one->wal.witness_run == other->wal.witness_run &&
		one->wal.witness_place == other->wal.witness_place && one->passed == other->passed &&
		one->partial.run == other->partial.run && one->partial.place == other->partial.place &&
		one->partial.passed == other->partial.passed;
}

HeraldGone
herald_history_add(HeraldHistory *history, const HeraldToken *token, const HeraldCut *cut,
				   HeraldListensTo wants, uint32 wanted_max, uint32 *section)
{
	MemoryContext caller = MemoryContextSwitchTo(history->memory);
	MemoryContext memory = AllocSetContextCreate(caller, "pg_herald reading", ALLOCSET_DEFAULT_SIZES);
	Reading		reading = {.history = history,.token = token,.wants = wants,.wanted_max = wanted_max};
	HeraldGone	result;

	history->sections = history->sections == NULL ? palloc(sizeof(Section)) :
		repalloc(history->sections, (history->used + 1) * sizeof(Section));
	if (history->file == NULL)
		history->file = BufFileCreateTemp(history->outlives_transaction);
	reading.section = &history->sections[history->used];
	*reading.section = (Section) {
		.token = *token,
		.received = *token,
		.cut = *cut,
		.end = token->wal
	};
	*section = history->used + 1;

	/* What an attempt that failed has written is overwritten. */
	seek(history, history->end);
	MemoryContextSwitchTo(memory);
	result = read_wal(&reading);
	if (cut->in_order)
		reading.section->end.done = Max(token->wal.done, reading.section->end.furthest);
	if (result == HERALD_GONE_NOTHING)
	{
		history->end = tell(history);
		history->used++;
	}

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
	XLogRecPtr	to = reading->section->cut.wal;
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
	Section    *section = reading->section;
	const HeraldToken *token = reading->token;

	if (event->commit_end == token->wal.furthest && event->run == token->wal.witness_run &&
		event->place == token->wal.witness_place)
		reading->has_witness = true;
	if (is_left_to_queue(section, event))
	{
		reading->has_left = true;
		return event->commit_end <= Max(token->wal.done, token->wal.furthest) ||
			received_of(token, event) != 0 ?
			lost("a transaction before it is still committing") : HERALD_GONE_NOTHING;
	}
	if (event->commit_end > section->end.furthest)
	{
		section->end.furthest = event->commit_end;
		section->end.witness_run = event->run;
		section->end.witness_place = event->place;
	}
	if (event->database != MyDatabaseId || event->commit_end <= token->wal.done)
		return HERALD_GONE_NOTHING;

	if (event->run == token->run)
	{
		if (event->place < token->place.position)
			return HERALD_GONE_NOTHING;

		/* Of a transaction with other notifications as well, only that server knows which it has sent. */
		if (event->place == token->place.position && token->place.offset != 0 && token->passed == 0)
			return lost("it is in the middle of a transaction with notifications that are not logged");
	}

	/* No position could say that this one has been received, and the one that is left has not. */
	if (reading->has_left)
		return lost("a transaction before it is still committing");
	return write_batch(reading, event, received_of(token, event));
}

/* The number of this transaction's notifications that the client has received. */
static uint32
received_of(const HeraldToken *token, const HeraldWalEvent *event)
{
	if (event->run == token->partial.run && event->place == token->partial.place)
		return token->partial.passed;
	if (event->run == token->run && event->place == token->place.position)
		return token->passed;
	return 0;
}

/* Does it have its place in this server's queue, at the cut or beyond? */
static bool
is_left_to_queue(const Section *section, const HeraldWalEvent *event)
{
	return event->run == herald_control->server_run && event->place >= section->cut.place;
}

static HeraldGone
write_batch(Reading *reading, const HeraldWalEvent *event, uint32 left_out)
{
	HeraldHistory *history = reading->history;
	PastTransaction header = {
		.section = history->used + 1,
		.left_out = left_out,
		.committed_at = event->committed_at,
		.commit_end = event->commit_end,
		.anchor = reading->anchor,
		.run = event->run,
		.place = event->place,
	};
	HeraldWalNotification notification;
	uint32		count = 0;
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
				if (count++ >= left_out)
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

	reading->section->gaps = lappend(reading->section->gaps, pstrdup(pattern));
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

uint32
herald_history_only_section(const HeraldHistory *history)
{
	return history->used == 1 ? 1 : 0;
}

bool
herald_history_covers(const HeraldHistory *history, uint32 section, const char *channel)
{
	return !is_gap(&history->sections[section - 1], channel);
}

static bool
is_gap(const Section *section, const char *channel)
{
	ListCell   *cell;

	foreach(cell, section->gaps)
	{
		if (herald_setting_matches(lfirst(cell), channel))
			return true;
	}
	return false;
}

bool
herald_history_next(HeraldHistory *history, HeraldPast *past)
{
	HeraldEntry head;
	char	   *entry;

	if (history->file == NULL)
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
		history->read = history->now.left_out;
		if (history->bytes_left == 0)
			return herald_history_next(history, past);
	}
	read_exactly(history, &head, sizeof(head));
	entry = room(history, head.length);
	memcpy(entry, &head, sizeof(head));
	read_exactly(history, entry + sizeof(head), head.length - sizeof(head));
	history->bytes_left -= head.length;
	history->read++;
	*past = (HeraldPast) {history->now.section, (HeraldEntry *) entry, history->now.committed_at, token_within(history)};
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
	HeraldToken after = token_within(history);

	after.partial = (HeraldPartial) {0};
	after.wal.done = history->now.commit_end;
	history->sections[history->now.section - 1].received = after;
	*past = (HeraldPast) {history->now.section, NULL, history->now.committed_at, after};
}

/* A place within the present transaction. */
static HeraldToken
token_within(const HeraldHistory *history)
{
	HeraldToken token = history->sections[history->now.section - 1].received;

	token.moved = true;
	token.partial = (HeraldPartial) {history->now.run, history->now.place, history->read};
	token.wal.from = Max(token.wal.from, history->now.anchor);
	if (token.wal.furthest < history->now.commit_end)
	{
		token.wal.furthest = history->now.commit_end;
		token.wal.witness_run = history->now.run;
		token.wal.witness_place = history->now.place;
	}
	return token;
}

HeraldWalMark
herald_history_mark(const HeraldHistory *history)
{
	HeraldWalMark mark = {0};

	for (uint32 i = 0; i < history->used; i++)
		herald_mark_join(&mark, &history->sections[i].end);
	return mark;
}

HeraldPosition
herald_history_end(const HeraldHistory *history)
{
	HeraldPosition end = 0;

	for (uint32 i = 0; i < history->used; i++)
		end = Max(end, history->sections[i].cut.place);
	return end;
}
