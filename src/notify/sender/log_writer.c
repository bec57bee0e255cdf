/*-------------------------------------------------------------------------
 *
 * log_writer.c
 *	  Puts a transaction's logged notifications into the WAL.
 *
 * The notifications are one message, in parts (core/wal_message.h).  The last part contains the place of the batch
 * in the queue.  So the last part is written when the batch already has its place, and all later batches wait for
 * this transaction meanwhile.  Each step that may wait for a lock, need memory or fail is done before the batch gets
 * its place: the text is composed, all other parts are written, and the transaction gets its id.  After that, only
 * XLogInsert() is called:
 *
 * - XLogInsert() cannot throw.  It needs no memory, since the arrays for its data, and the buffer for the head of a
 *   record without pages, were allocated when the process began.  Its checks cannot fail, since this process has a
 *   transaction id, so the server is not in recovery; no other record is being composed; and the text is far below
 *   the limit of a record.
 * - XLogInsert() serves no interrupt, since it takes lightweight locks, which hold interrupts off.
 * - XLogInsert() waits only for other processes that are inserting, and for a free WAL buffer, as it does for other
 *   records, such as the commit record that follows.  If the disk is full, the server panics, and the transaction is
 *   not committed.
 *
 * Since all later batches wait while the last part is written, a part is at most as large as the server can write
 * without a noticeable delay.  A single notification that is larger is never in the last part.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/position/anchor.h"
#include "notify/sender/log_writer.h"
#include "notify/settings/channel_settings.h"
#include "notify/wal/wal_origin.h"

/* Maximum bytes of a part, unless a single notification needs more. */
#define PART_MAX			((size_t) 256 * 1024)

/* Maximum bytes of a part with a single notification: half of the bytes that fit into a record. */
#define SINGLE_MAX			((size_t) 512 * 1024 * 1024)

/* Initial size of the text, in bytes. */
#define TEXT_SIZE_MIN		((size_t) 1024)

static struct
{
	char	   *text;			/* the text of the current part; in
								 * TopTransactionContext */
	size_t		size;			/* bytes that are allocated for `text` */
	size_t		length;
	uint32		part;			/* number of the current part; 0: so far no
								 * notification is logged */
	uint32		notifications;	/* number of notifications in the current part */
	HeraldSender sender;
	XLogRecPtr	first;			/* where the record of part 1 begins */
	bool		is_complete;	/* `text` is the last part, and complete
								 * except for the batch's place */

	/* The channel that was looked up last, and the result of the lookup. */
	char		channel[NAMEDATALEN];
	bool		channel_is_logged;
}			message;

static bool is_logged(const HeraldEntry *entry);
static void add(const char *channel, size_t channel_length, const char *payload, size_t payload_length);
static void begin_part(uint32 part);
static void write_part(void);
static void make_room(size_t bytes);
herald_noreturn static void report_too_long(void);


bool
herald_log_writer_begin(void)
{
	herald_log_writer_reset();
	return herald_channel_settings_use();
}

void
herald_log_writer_add(const HeraldEntry *entry)
{
	CHECK_FOR_INTERRUPTS();
	if (is_logged(entry))
		add(herald_entry_channel(entry), entry->channel_length,
			herald_entry_payload(entry), herald_entry_payload_length(entry));
}

bool
herald_log_writer_complete(void)
{
	if (message.part == 0)
		return false;

	if (message.length > PART_MAX)
		write_part();
	message.length += herald_wal_write_tail(message.text + message.length, true);
	HERALD_STOP_POINT("log-complete");
	herald_anchor_precede();
	message.is_complete = true;
	return true;
}

void
herald_log_writer_write(HeraldPosition place)
{
	if (!message.is_complete)
		return;
	message.is_complete = false;
	herald_wal_set_place(message.text, place);
	(void) herald_wal_origin_log(message.text, message.length, true);
}

void
herald_log_writer_reset(void)
{
	memset(&message, 0, sizeof(message));
}

/* Is the entry's channel logged?  The last result is kept, since consecutive notifications often share a channel. */
static bool
is_logged(const HeraldEntry *entry)
{
	const char *channel = herald_entry_channel(entry);

	if (strcmp(channel, message.channel) != 0)
	{
		message.channel_is_logged = herald_channel_settings_include(channel);
		strlcpy(message.channel, channel, sizeof(message.channel));
	}
	return message.channel_is_logged;
}

static void
add(const char *channel, size_t channel_length, const char *payload, size_t payload_length)
{
	size_t		most = herald_wal_notification_max(channel_length, payload_length);

	if (message.part == 0)
	{
		message.sender.xid = U64FromFullTransactionId(GetTopFullTransactionId());
		message.sender.role = GetUserId();
		begin_part(1);
	}
	else if (message.notifications > 0 && message.length + most + HERALD_WAL_TAIL_MAX > PART_MAX)
		write_part();

	make_room(message.length + most + HERALD_WAL_TAIL_MAX);
	message.length += herald_wal_write_notification(message.text + message.length, message.notifications == 0,
													channel, channel_length, payload, payload_length);
	message.notifications++;
	if (message.length > SINGLE_MAX)
		report_too_long();
}

static void
begin_part(uint32 part)
{
	make_room(HERALD_WAL_HEAD_MAX + HERALD_WAL_TAIL_MAX);
	message.part = part;
	message.notifications = 0;
	message.length = herald_wal_write_head(message.text, herald_control->server_run, part, message.first, message.sender);
}

/* Write the current part, which is not the last part, and begin the next part. */
static void
write_part(void)
{
	message.length += herald_wal_write_tail(message.text + message.length, false);
	HERALD_STOP_POINT("log-part");
	(void) herald_wal_origin_log(message.text, message.length, true);
	if (message.part == 1)
		message.first = ProcLastRecPtr;
	begin_part(message.part + 1);
}

static void
make_room(size_t bytes)
{
	size_t		size = Max(message.size, TEXT_SIZE_MIN);

	if (bytes <= message.size)
		return;
	while (size < bytes)
		size *= 2;
	message.text = message.text ? repalloc_huge(message.text, size) :
		MemoryContextAllocHuge(TopTransactionContext, size);
	message.size = size;
}

static void
report_too_long(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("notification is too long to be logged"),
			 errdetail("In the WAL, where control characters, quotes and backslashes are escaped, it would need more than %zu MB.",
					   SINGLE_MAX / 1024 / 1024)));
}
