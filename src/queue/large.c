/*-------------------------------------------------------------------------
 *
 * large.c
 *	  The files of transactions that are too large for a segment of the log.
 *
 * Such a transaction writes its entries to a file of its own as they come
 * (sender/overflow.c), and puts a reference into the log.  From then on the
 * file is the queue's: it is deleted when every listener has read past the
 * reference, or given up like a segment (spill.c).
 *
 * A file counts for herald.max_queue_size as it grows.  As long as there is room
 * its owner takes that without a lock; only to have others make room it needs
 * spill_lock.  So segments, which are counted under that, may pass the limit by
 * one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat/compat.h"
#include "core/stop_point.h"
#include "dispatch/watchdog.h"
#include "queue/files.h"
#include "queue/large.h"
#include "queue/spill.h"
#include "settings.h"
#include "shared.h"

/* The next one fails: see enter(). */
#define LARGE_MAX		HERALD_LARGE_FILES_MAX

/* The position of a reference that has no place in the log yet. */
#define NOT_PLACED		PG_UINT64_MAX

/*
 * Stays where it is in the table, so that its owner can say its position
 * without the lock: others wait for its batch by then, and whoever has the lock
 * may be writing to a disk that hangs.
 */
typedef struct LargeFile
{
	_Atomic uint64_t number;	/* 0: free */
	_Atomic uint64_t position;
	_Atomic uint64_t bytes;		/* its owner writes, before it has a position */
} LargeFile;

struct HeraldLarge
{
	_Atomic uint64_t bytes;		/* of all of them */

	/* Written under spill_lock. */
	uint64		last_number;
	_Atomic int count;
	_Atomic int used;			/* all from here on are free */
	LargeFile	files[LARGE_MAX];	/* in no particular order */
};

static uint64 enter(void);
static LargeFile *find(uint64 number);
static HeraldPosition position_of(int i);
static bool take(uint64 bytes);
static void discard(LargeFile *file);
herald_noreturn static void report_full(uint64 own);
herald_noreturn static void report_lost(uint64 number);
static void log_lost(uint64 number);


Size
herald_large_shared_size(void)
{
	return sizeof(HeraldLarge);
}

void
herald_large_shared_init(void)
{
	memset((void *) herald_large, 0, sizeof(HeraldLarge));
}

File
herald_large_create(uint64 *number)
{
	herald_files_choose_place();
	*number = enter();
	HERALD_STOP_POINT("large-entered");
	return herald_files_create(HERALD_FILE_LARGE, *number);
}

void
herald_large_grow(uint64 number, uint64 bytes, bool forced)
{
	LargeFile  *file = find(number);
	bool		taken;

	if (file == NULL)
		report_lost(number);

	/* The last quarter is for what is committed: open transactions make no listener lose that. */
	if (!forced && herald_large_bytes_open() + bytes > (uint64) herald_max_queue_size_kb * 1024 / 4 * 3)
		report_full(atomic_load(&file->bytes));
	taken = take(bytes);
	if (!taken)
	{
		herald_spill_lock(LW_EXCLUSIVE);
		while (!taken && herald_spill_leave_room(bytes))
			taken = take(bytes);
		if (!taken && forced)
		{
			atomic_fetch_add(&herald_large->bytes, bytes);
			taken = true;
		}
		herald_spill_unlock();
	}
	if (!taken)
		report_full(atomic_load(&file->bytes));
	atomic_fetch_add(&file->bytes, bytes);
}

uint64
herald_large_transaction_max(void)
{
	return Min((uint64) herald_max_queue_size_kb * 1024 / 2, herald_spill_bytes_max());
}

void
herald_large_complete(uint64 number, uint64 bytes)
{
	LargeFile  *file = find(number);

	if (file == NULL)
		report_lost(number);
	atomic_fetch_sub(&herald_large->bytes, atomic_load(&file->bytes) - bytes);
	atomic_store(&file->bytes, bytes);
	herald_watchdog_alert();	/* as when a segment is written */
}

void
herald_large_place(uint64 number, HeraldPosition position)
{
	LargeFile  *file = find(number);

	/* Without it the listeners that get there are told that they have missed something. */
	if (file == NULL)
		log_lost(number);
	else
		atomic_store(&file->position, position);
}

void
herald_large_forget(uint64 number, bool others_wait)
{
	LargeFile  *file = find(number);

	/* Below everything: the next backend that looks deletes it. */
	if (file == NULL)
		log_lost(number);
	else
		atomic_store(&file->position, 0);

	/* To delete gigabytes takes its time. */
	if (others_wait && herald_watchdog_runs())
	{
		herald_watchdog_alert();
		return;
	}
	herald_spill_trim();
	if (herald_spill_needs_trim())
		herald_watchdog_alert();	/* the lock was not free */
}

bool
herald_large_delete_below(HeraldPosition position)
{
	bool		found = false;

	for (int i = 0; i < herald_large->used; i++)
	{
		if (position_of(i) < position)
		{
			discard(&herald_large->files[i]);
			found = true;
		}
	}
	return found;
}

HeraldPosition
herald_large_oldest(void)
{
	HeraldPosition oldest = NOT_PLACED;

	for (int i = 0; i < herald_large->used; i++)
		oldest = Min(oldest, position_of(i));
	return oldest;
}

int
herald_large_count(void)
{
	return atomic_load_explicit(&herald_large->count, memory_order_relaxed);
}

uint64
herald_large_bytes(void)
{
	return atomic_load_explicit(&herald_large->bytes, memory_order_relaxed);
}

uint64
herald_large_bytes_from(HeraldPosition position)
{
	uint64		bytes = 0;

	for (int i = 0; i < atomic_load(&herald_large->used); i++)
	{
		LargeFile  *file = &herald_large->files[i];

		if (atomic_load(&file->number) != 0 && atomic_load(&file->position) >= position)
			bytes += atomic_load(&file->bytes);
	}
	return bytes;
}

uint64
herald_large_bytes_open(void)
{
	return herald_large_bytes_from(NOT_PLACED);
}

/*
 * Without the lock: it is for a view and the log, and others need the lock to
 * write.  An entry that changes hands meanwhile is left out.
 */
uint64
herald_large_bytes_between(HeraldPosition from, HeraldPosition to)
{
	uint64		bytes = 0;

	if (herald_large_bytes() == 0)
		return 0;
	for (int i = 0; i < atomic_load(&herald_large->used); i++)
	{
		LargeFile  *file = &herald_large->files[i];
		uint64		number = atomic_load(&file->number);
		HeraldPosition position = atomic_load(&file->position);
		uint64		size = atomic_load(&file->bytes);

		if (number != 0 && position >= from && position < to &&
			atomic_load(&file->number) == number)
			bytes += size;
	}
	return bytes;
}

bool
herald_large_read(uint64 number, uint64 offset, uint64 length, char *to)
{
	File		file;
	bool		success;

	/* Not kept open while the client takes its time: deleted, it would still fill the disk. */
	if (!herald_files_open(HERALD_FILE_LARGE, number, &file))
		return false;			/* given up */
	success = herald_files_read(file, to, length, offset);
	FileClose(file);
	return success;
}

/*
 * A place in the table, and a number.  A file is larger than a segment, or its
 * transaction is still open; so the table does not fill before the queue's limit
 * is reached, unless that is very large, or herald.queue_memory small.
 */
static uint64
enter(void)
{
	uint64		number = 0;
	LargeFile  *file;

	herald_spill_lock(LW_EXCLUSIVE);
	file = find(0);
	if (file != NULL)
	{
		number = ++herald_large->last_number;
		atomic_store(&file->bytes, 0);
		atomic_store(&file->position, NOT_PLACED);
		atomic_store(&file->number, number);
		herald_large->used = Max(herald_large->used, (int) (file - herald_large->files) + 1);
		atomic_fetch_add(&herald_large->count, 1);
	}
	herald_spill_unlock();

	if (number == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many transactions have too many notifications for memory at the same time"),
				 errdetail("There can be %d of them.", LARGE_MAX)));
	return number;
}

/*
 * The entry of this number, which is the caller's own: nobody else removes it
 * before its batch is finished, so there is one unless memory was damaged.  Or,
 * under spill_lock, a free one, of number 0.  NULL: there is none.
 */
static LargeFile *
find(uint64 number)
{
	for (int i = 0; i < LARGE_MAX; i++)
	{
		if (atomic_load(&herald_large->files[i].number) == number)
			return &herald_large->files[i];
	}
	return NULL;
}

/* Under spill_lock.  A free entry counts as not placed. */
static HeraldPosition
position_of(int i)
{
	LargeFile  *file = &herald_large->files[i];

	return atomic_load(&file->number) == 0 ? NOT_PLACED : atomic_load(&file->position);
}

/* Count that many bytes more.  False: there is no room for them. */
static bool
take(uint64 bytes)
{
	uint64		max = herald_spill_bytes_max();
	uint64_t	before = atomic_load(&herald_large->bytes);

	do
	{
		if (herald_spill_segment_bytes() + before + bytes > max)
			return false;
	} while (!atomic_compare_exchange_weak(&herald_large->bytes, &before, before + bytes));
	return true;
}

/* Under spill_lock. */
static void
discard(LargeFile *file)
{
	herald_files_doom(HERALD_FILE_LARGE, atomic_load(&file->number));
	atomic_fetch_sub(&herald_large->bytes, atomic_load(&file->bytes));
	atomic_fetch_sub(&herald_large->count, 1);
	atomic_store(&file->number, 0);
	while (herald_large->used > 0 &&
		   atomic_load(&herald_large->files[herald_large->used - 1].number) == 0)
		herald_large->used--;
}

/* No room for this transaction's file, of so many bytes up to now. */
static void
report_full(uint64 own)
{
	uint64		all = herald_spill_bytes();
	uint64		open = herald_large_bytes_open();

	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("notifications of open transactions would take more than herald.max_queue_size (%d kB)",
					herald_max_queue_size_kb),
			 errdetail("Memory takes %llu kB of it, this transaction's file %llu kB, those of other open transactions %llu kB, and what is being committed or has yet to be read %llu kB.",
					   (unsigned long long) herald_log->ring_size / 1024,
					   (unsigned long long) own / 1024,
					   (unsigned long long) (open > own ? open - own : 0) / 1024,
					   (unsigned long long) (all > open ? all - open : 0) / 1024),
			 errhint("Try again when other transactions have ended, notify less in one transaction, or increase herald.max_queue_size.")));
}

static void
report_lost(uint64 number)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("pg_herald has lost track of its temporary file %llu",
					(unsigned long long) number),
			 errdetail("The notifications of this transaction are in it.")));
}

static void
log_lost(uint64 number)
{
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("pg_herald has lost track of its temporary file %llu",
					(unsigned long long) number),
			 errdetail("Listeners that would read it are told that they have missed notifications."),
			 errhidestmt(true)));
}
