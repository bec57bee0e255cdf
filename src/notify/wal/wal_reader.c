/*-------------------------------------------------------------------------
 *
 * wal_reader.c
 *	  Reads this server's WAL, record by record, as far as it can be relied on.
 *
 * The server's own reader does the work, through files in pg_wal, without a replication slot: so
 * the server may delete a file that is still to be read.  Its functions end at the replay
 * position of a standby, and at the flush position of a primary.
 *
 * They return no record in different cases, which are distinguished here:
 *
 * - At the end.  The function that reads a page notes that.
 *
 * - A file is missing: an error is thrown.  It may be gone for good.  But for a moment it can be
 *	 missing although its contents are there: when a standby is promoted, its last file gets
 *	 another name before the server reads from the file of the new timeline; and a standby whose
 *	 primary has been promoted removes what the old timeline had beyond that.
 *
 * - What was read is not a valid record, although the server has replayed it: the open file is not
 *	 the one that was replayed, because another one has taken its place under the same name (from the
 *	 archive), or its name was given to a later part of the WAL.
 *
 * So after each failure everything is opened again, and only a failure that comes again counts: at
 * once in a file that the server has left behind, whose name stays; in its last one, which gets
 * another name at a promotion, if it lasts for HERALD_WAL_WAIT_MS.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/wal/wal_reader.h"

/* Records that one call passes over at most, so that its caller can do other things meanwhile. */
#define PASSED_OVER_MAX		1000

/* A record of a page's changes is shorter than this; one that is longer has a long notification. */
#define RECORD_KEPT			((uint32) 1024 * 1024)

struct HeraldWalReader
{
	ReadLocalXLogPageNoWaitPrivate page;	/* first: what the server gives to
											 * open_file() */
	MemoryContext context;		/* for this struct */
	MemoryContext xlog_context; /* for everything that the server's reader
								 * allocates */
	MemoryContextCallback at_close; /* closes the file when xlog_context ends */
	XLogReaderState *xlog;		/* NULL: it is to be opened again */
	XLogSegNo	file;			/* the last one that was to be opened */
	XLogRecPtr	position;		/* the end of the last record */
	bool		is_inexact;		/* a record may begin only after the position */
	char		reason[256];
};

/* The transaction of the last wait, and how long its waits took. */
static LocalTransactionId waited_in;
static uint64 waited_ms;

static bool try_again(HeraldWalReader *reader, HeraldWalRead *result);
static bool try_next(HeraldWalReader *reader, HeraldWalRead *result);
static bool read_next(HeraldWalReader *reader, HeraldWalRead *result);
static bool find_record(HeraldWalReader *reader, char **error);
static bool may_concern_us(XLogReaderState *record);
static void open_xlog(HeraldWalReader *reader);
static void close_xlog(HeraldWalReader *reader);
static void go_to_position(HeraldWalReader *reader);
static void open_file(XLogReaderState *xlog, XLogSegNo file, TimeLineID *timeline);
static void close_file(void *arg);
static bool failed(HeraldWalReader *reader, const char *reason);
static bool is_in_last_file(const HeraldWalReader *reader);
static void sleep_for(uint64 time_ms);


HeraldWalReader *
herald_wal_reader_open(XLogRecPtr from)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pg_herald WAL reader",
												  ALLOCSET_DEFAULT_SIZES);
	HeraldWalReader *reader = MemoryContextAllocZero(context, sizeof(HeraldWalReader));

	reader->context = context;
	reader->position = from;
	return reader;
}

void
herald_wal_reader_close(HeraldWalReader *reader)
{
	MemoryContextDelete(reader->context);
}

HeraldWalRead
herald_wal_reader_next(HeraldWalReader *reader)
{
	HeraldWalRead result;

	HERALD_MAY_WAIT();
	return try_next(reader, &result) || try_again(reader, &result) ? result : HERALD_WAL_READ_GONE;
}

/*
 * The name of a file may be changing, so it tries at least once more.  In the server's last file it waits
 * longer, for what is to be written there.  False: it fails all the time.
 */
static bool
try_again(HeraldWalReader *reader, HeraldWalRead *result)
{
	uint64		left_ms = herald_wal_wait_left();
	uint64		begin_ms = herald_clock_ms();
	uint64		now_ms = begin_ms;
	uint64		end_ms;

	do
	{
		long		pause_ms;

		end_ms = begin_ms + (is_in_last_file(reader) ? Max(left_ms, HERALD_LOOK_MIN_MS) : HERALD_LOOK_MIN_MS);
		pause_ms = herald_wait_pause(begin_ms, now_ms, Max(end_ms, now_ms + 1));
		sleep_for(pause_ms);
		herald_wal_waited(pause_ms);
		if (try_next(reader, result))
			return true;
		now_ms = herald_clock_ms();
	} while (now_ms < end_ms);
	return false;
}

uint64
herald_wal_wait_left(void)
{
	LocalTransactionId now = herald_proc_lxid(herald_my_proc_number());

	if (now != waited_in || now == InvalidLocalTransactionId)
		waited_ms = 0;
	waited_in = now;
	return HERALD_WAL_WAIT_MS - Min(waited_ms, HERALD_WAL_WAIT_MS);
}

void
herald_wal_waited(uint64 time_ms)
{
	waited_ms += time_ms;
}

/* False: reading has failed, and may succeed later. */
static bool
try_next(HeraldWalReader *reader, HeraldWalRead *result)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool success = false;

	/*
	 * The server's reader would keep room for the longest record that it has
	 * read.
	 */
	if (reader->xlog != NULL && reader->xlog->readRecordBufSize > RECORD_KEPT)
		close_xlog(reader);
	if (reader->xlog == NULL)
		open_xlog(reader);
	PG_TRY();
	{
		MemoryContextSwitchTo(reader->xlog_context);
		success = read_next(reader, result);
		MemoryContextSwitchTo(caller);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		success = failed(reader, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();
	if (!success)
		close_xlog(reader);		/* the next attempt opens everything again */
	return success;
}

XLogReaderState *
herald_wal_reader_record(HeraldWalReader *reader)
{
	return reader->xlog;
}

XLogRecPtr
herald_wal_reader_position(const HeraldWalReader *reader)
{
	return reader->position;
}

void
herald_wal_reader_seek(HeraldWalReader *reader, XLogRecPtr to)
{
	reader->position = to;
	reader->is_inexact = false;
	if (reader->xlog != NULL)
		go_to_position(reader);
}

void
herald_wal_reader_seek_after(HeraldWalReader *reader, XLogRecPtr place)
{
	herald_wal_reader_seek(reader, place);
	reader->is_inexact = true;
}

const char *
herald_wal_reader_reason(const HeraldWalReader *reader)
{
	return reader->reason;
}

XLogRecPtr
herald_wal_readable_to(void)
{
	return RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
}

static bool
read_next(HeraldWalReader *reader, HeraldWalRead *result)
{
	*result = HERALD_WAL_READ_RECORD;
	for (int passed_over = 0;; passed_over++)
	{
		char	   *error = NULL;

		HERALD_FAULT_POINT("wal-read");
		reader->page.end_of_wal = false;
		if (reader->is_inexact && !find_record(reader, &error))
		{
			*result = HERALD_WAL_READ_END;
			return reader->page.end_of_wal || failed(reader, error ? error : "no record was found");
		}
		if (XLogReadRecord(reader->xlog, &error) == NULL)
		{
			if (!reader->page.end_of_wal || error != NULL)
				return failed(reader, error ? error : "no record was found");

			/*
			 * The last page may have changed since it was read: read it
			 * again.
			 */
			go_to_position(reader);
			*result = HERALD_WAL_READ_END;
			return true;
		}
		reader->position = reader->xlog->EndRecPtr;
		if (may_concern_us(reader->xlog) || passed_over == PASSED_OVER_MAX)
			return true;
	}
}

/* False: the server has no more WAL for the moment. */
static bool
find_record(HeraldWalReader *reader, char **error)
{
	XLogRecPtr	first = herald_find_next_record(reader->xlog, reader->position, error);

	if (first == InvalidXLogRecPtr)
		return false;
	herald_wal_reader_seek(reader, first);
	return true;
}

/* See reorder.c. */
static bool
may_concern_us(XLogReaderState *record)
{
	switch (XLogRecGetRmid(record))
	{
		case RM_DBASE_ID:
		case RM_LOGICALMSG_ID:
		case RM_STANDBY_ID:
		case RM_XACT_ID:
		case RM_XLOG_ID:
			return true;
		default:
			return false;
	}
}

static void
open_xlog(HeraldWalReader *reader)
{
	MemoryContext caller;

	reader->xlog_context = AllocSetContextCreate(reader->context, "pg_herald server's WAL reader",
												 ALLOCSET_DEFAULT_SIZES);
	reader->at_close.func = close_file;
	reader->at_close.arg = reader;
	MemoryContextRegisterResetCallback(reader->xlog_context, &reader->at_close);
	caller = MemoryContextSwitchTo(reader->xlog_context);
	reader->xlog = XLogReaderAllocate(wal_segment_size, NULL,
									  XL_ROUTINE(.page_read = read_local_xlog_page_no_wait,
												 .segment_open = open_file,
												 .segment_close = wal_segment_close),
									  &reader->page);
	MemoryContextSwitchTo(caller);
	if (reader->xlog == NULL)
	{
		close_xlog(reader);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	}
	go_to_position(reader);
	reader->file = reader->position / wal_segment_size;
}

/* The file, too.  XLogReaderFree() leaves a long record behind that has been decoded. */
static void
close_xlog(HeraldWalReader *reader)
{
	MemoryContextDelete(reader->xlog_context);
	reader->xlog = NULL;
}

/* A record that ends with its page ends where the next page's header begins: a server with assertions begins at no header. */
static void
go_to_position(HeraldWalReader *reader)
{
	XLogRecPtr	position = reader->position;

	if (position % wal_segment_size == 0)
		position += SizeOfXLogLongPHD;
	else if (position % XLOG_BLCKSZ == 0)
		position += SizeOfXLogShortPHD;
	XLogBeginRead(reader->xlog, position);
}

static void
open_file(XLogReaderState *xlog, XLogSegNo file, TimeLineID *timeline)
{
	((HeraldWalReader *) xlog->private_data)->file = file;
	wal_segment_open(xlog, file, timeline);
}

/* The server opens it without a resource owner. */
static void
close_file(void *arg)
{
	HeraldWalReader *reader = arg;

	if (reader->xlog != NULL && reader->xlog->seg.ws_file >= 0)
		wal_segment_close(reader->xlog);
}

/* Returns false. */
static bool
failed(HeraldWalReader *reader, const char *reason)
{
	strlcpy(reader->reason, reason, sizeof(reader->reason));
	return false;
}

/* Has it failed in the file that the server is writing or replaying? */
static bool
is_in_last_file(const HeraldWalReader *reader)
{
	return reader->file >= herald_wal_readable_to() / wal_segment_size;
}

static void
sleep_for(uint64 time_ms)
{
	uint64		end_ms = herald_clock_ms() + time_ms;
	uint64		now_ms;

	HERALD_MAY_WAIT();
	while ((now_ms = herald_clock_ms()) < end_ms)
	{
		CHECK_FOR_INTERRUPTS();
		herald_wait_sleep(HERALD_WAIT_REPLAY, (long) (end_ms - now_ms));
	}
}
