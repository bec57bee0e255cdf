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
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "core/stop_point.h"
#include "dispatch/watchdog.h"
#include "queue/files.h"
#include "queue/large.h"
#include "queue/spill.h"
#include "shared.h"

/* That many at a time; then the oldest part of the queue that was not read is given up. */
#define LARGE_MAX		8192

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
	uint64		bytes;
} LargeFile;

struct HeraldLarge
{
	/* Written under spill_lock. */
	uint64		last_number;
	_Atomic uint64 bytes;		/* of all of them */
	_Atomic int count;
	int			used;			/* all from here on are free */
	LargeFile	files[LARGE_MAX];	/* in no particular order */
};

static uint64 enter(void);
static LargeFile *find(uint64 number);
static HeraldPosition position_of(int i);
static void discard(LargeFile *file);
static void file_name(char *name, uint64 number);


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
	char		name[HERALD_FILE_NAME_MAX];

	herald_files_choose_place();
	*number = enter();
	HERALD_STOP_POINT("large-entered");
	file_name(name, *number);
	return herald_files_create(name);
}

void
herald_large_complete(uint64 number, uint64 bytes)
{
	herald_spill_lock();
	herald_spill_leave_room(bytes);
	find(number)->bytes = bytes;
	atomic_fetch_add(&herald_large->bytes, bytes);
	LWLockRelease(herald_control->spill_lock);
	herald_watchdog_alert();	/* as when a segment is written */
}

void
herald_large_place(uint64 number, HeraldPosition position)
{
	atomic_store(&find(number)->position, position);
}

void
herald_large_forget(uint64 number)
{
	/* Below everything: whoever looks deletes it, from now on. */
	atomic_store(&find(number)->position, 0);
	herald_spill_trim();
}

void
herald_large_delete_below(HeraldPosition position)
{
	for (int i = 0; i < herald_large->used; i++)
	{
		if (position_of(i) < position)
			discard(&herald_large->files[i]);
	}
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

bool
herald_large_bytes_between(HeraldPosition from, HeraldPosition to, bool wait, uint64 *bytes)
{
	*bytes = 0;
	if (herald_large_bytes() == 0)
		return true;

	if (wait)
		LWLockAcquire(herald_control->spill_lock, LW_SHARED);
	else if (!LWLockConditionalAcquire(herald_control->spill_lock, LW_SHARED))
		return false;
	for (int i = 0; i < herald_large->used; i++)
	{
		if (position_of(i) >= from && position_of(i) < to)
			*bytes += herald_large->files[i].bytes;
	}
	LWLockRelease(herald_control->spill_lock);
	return true;
}

bool
herald_large_read(uint64 number, uint64 offset, uint64 length, char *to)
{
	char		name[HERALD_FILE_NAME_MAX];
	File		file;
	bool		success;

	/* Not kept open while the client takes its time: deleted, it would still fill the disk. */
	file_name(name, number);
	if (!herald_files_open(name, &file))
		return false;			/* given up */
	success = herald_files_read(file, to, length, offset);
	FileClose(file);
	return success;
}

/*
 * A place in the table, and a number.  If there is none, the oldest gives way;
 * it takes thousands of unread ones to get there.
 */
static uint64
enter(void)
{
	uint64		number = 0;

	do
	{
		herald_spill_lock();
		if (herald_large->count < LARGE_MAX)
		{
			LargeFile  *file = find(0);

			number = ++herald_large->last_number;
			file->bytes = 0;
			atomic_store(&file->position, NOT_PLACED);
			atomic_store(&file->number, number);
			herald_large->used = Max(herald_large->used, (int) (file - herald_large->files) + 1);
			atomic_fetch_add(&herald_large->count, 1);
		}
		LWLockRelease(herald_control->spill_lock);
	} while (number == 0 && herald_spill_give_up_oldest());

	if (number == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many transactions have too many notifications for memory at the same time"),
				 errdetail("There can be %d of them.", LARGE_MAX)));
	return number;
}

/*
 * The entry of this number, which is the caller's own: nobody else removes it
 * before its batch is finished.  Or, under spill_lock, a free one, of number 0.
 */
static LargeFile *
find(uint64 number)
{
	for (int i = 0; i < LARGE_MAX; i++)
	{
		if (atomic_load(&herald_large->files[i].number) == number)
			return &herald_large->files[i];
	}
	elog(PANIC, "pg_herald has lost track of its temporary file " UINT64_FORMAT, number);
}

/* Under spill_lock.  A free entry counts as not placed. */
static HeraldPosition
position_of(int i)
{
	LargeFile  *file = &herald_large->files[i];

	return atomic_load(&file->number) == 0 ? NOT_PLACED : atomic_load(&file->position);
}

/* Under spill_lock. */
static void
discard(LargeFile *file)
{
	char		name[HERALD_FILE_NAME_MAX];

	file_name(name, atomic_load(&file->number));
	atomic_fetch_sub(&herald_large->bytes, file->bytes);
	atomic_fetch_sub(&herald_large->count, 1);
	atomic_store(&file->number, 0);
	herald_files_delete(name);
}

static void
file_name(char *name, uint64 number)
{
	snprintf(name, HERALD_FILE_NAME_MAX, "herald.large." UINT64_FORMAT, number);
}
