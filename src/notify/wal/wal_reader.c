/*-------------------------------------------------------------------------
 *
 * wal_reader.c
 *	  Reads this server's WAL record by record: on a standby up to the replay position, on a primary up to the flush
 *	  position.
 *
 * The server's own WAL reader does the work: it reads the files in pg_wal, up to the replay position on a standby, and
 * up to the flush position on a primary.  No replication slot protects these files, so the server may delete a file
 * before it is read here.
 *
 * In three cases the server's functions return no record.  This file distinguishes the three cases:
 *
 * - The end is reached.  The function that reads a page notes this case in page.end_of_wal.
 *
 * - A file is missing, and the server's functions throw an error.  The file may be gone for good.  But in two cases a
 *   file is missing although the server has its contents in another file.  First, when a standby is promoted, its last
 *   file gets another name, and for a moment the server's functions still look for the old name.  Second, each standby
 *   of the promoted server removes the files of the old timeline that are later than the promotion.
 *
 * - The bytes that were read are not a valid record, although the server has written or replayed a record at this
 * place.  Then the open file does not have this part of the WAL any more: either a file from the archive has taken its
 * name, or the server has recycled it for a later part of the WAL.
 *
 * So after each failure the reader opens everything again, and only a repeated failure is final.  A file that the
 * server has finished keeps its name, so in such a file the second failure is final.  The name of the server's last
 * file changes at a promotion, so in the last file a failure is final only when the waits of the current transaction
 * add up to HERALD_WAL_WAIT_MS.  Outside of a transaction, only the waits of this call count.
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

/*
 * Maximum number of records that one call of herald_wal_reader_next() passes over.  The limit lets the caller do
 * other things between two calls.
 */
#define PASSED_OVER_MAX		1000

/*
 * Maximum size in bytes of a record buffer that is kept for the next record.  A larger buffer is freed, since almost
 * all records are shorter.
 */
#define RECORD_KEPT			((uint32) 1024 * 1024)

struct HeraldWalReader
{
	ReadLocalXLogPageNoWaitPrivate page;	/* must be the first field, since
											 * open_file() casts a pointer to
											 * this field to a pointer to the
											 * struct */
	MemoryContext context;		/* for this struct */
	MemoryContext xlog_context; /* for everything that the server's reader
								 * allocates */
	MemoryContextCallback at_close; /* closes the file when xlog_context ends */
	XLogReaderState *xlog;		/* the server's reader; NULL: it must be
								 * created */
	XLogSegNo	file;			/* number of the WAL segment whose file the
								 * reader has last tried to open, or will open
								 * first */
	XLogRecPtr	position;		/* where reading continues */
	bool		is_inexact;		/* perhaps no record begins at `position`, so
								 * reading begins with the first record at
								 * `position` or later */
	char		reason[256];
};

/* The last transaction that has called herald_wal_wait_left(), and the total time that this transaction has waited. */
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
 * Try at least once more, since the name of the file may be changing.  After a failure in the server's last file, try
 * again for as long as herald_wal_wait_left() allows.  Returns false if all attempts fail.
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

/* Try to read once.  Returns false if reading has failed; a later attempt may succeed. */
static bool
try_next(HeraldWalReader *reader, HeraldWalRead *result)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool success = false;

	/*
	 * The server's reader never makes its buffer shorter, so free the buffer
	 * after a long record.
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
			 * Make the next call begin here again, without what the server's
			 * reader has kept of the failed read.
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

/* Move to the first record that begins at reader->position or later.  Returns false if no record was found. */
static bool
find_record(HeraldWalReader *reader, char **error)
{
	XLogRecPtr	first = herald_find_next_record(reader->xlog, reader->position, error);

	if (first == InvalidXLogRecPtr)
		return false;
	herald_wal_reader_seek(reader, first);
	return true;
}

/* Is the record of a kind that reorder.c looks at? */
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

/*
 * Delete the context of the server's reader, which also calls close_file().  XLogReaderFree() would not be enough,
 * since it does not free a long record that has been decoded.
 */
static void
close_xlog(HeraldWalReader *reader)
{
	MemoryContextDelete(reader->xlog_context);
	reader->xlog = NULL;
}

/*
 * Let the server's reader continue at reader->position.  If the last record ended at the end of a page, this position
 * is where the header of the next page begins.  Then begin after the header, since a server that was built with
 * assertions fails if reading begins at a header.
 */
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

/* The server opens the file without a resource owner, so no other code would close the file after an error. */
static void
close_file(void *arg)
{
	HeraldWalReader *reader = arg;

	if (reader->xlog != NULL && reader->xlog->seg.ws_file >= 0)
		wal_segment_close(reader->xlog);
}

/* Note why reading has failed.  Always returns false. */
static bool
failed(HeraldWalReader *reader, const char *reason)
{
	strlcpy(reader->reason, reason, sizeof(reader->reason));
	return false;
}

/* Has reading failed in the file that the server is writing or replaying? */
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
