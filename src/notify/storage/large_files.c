/*-------------------------------------------------------------------------
 *
 * large_files.c
 *	  The table of large transactions' files.
 *
 * A transaction whose notifications do not fit into a segment writes its entries to a file of
 * its own while it runs (notify/sender/large_transaction.c), and puts a reference into the
 * queue.  From then on the file belongs to the queue: it is deleted when all listeners have
 * read past the reference, or given up like a segment (spill.c).
 *
 * This file has the table, which all processes read; large_writer.c is the owner's side.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/shared.h"
#include "notify/storage/files.h"
#include "notify/storage/large_files.h"

/*
 * An entry never moves in the table, so that the file's owner can store the position without
 * the lock: other sessions are waiting for the batch, and the holder of the lock may be
 * writing to a disk that hangs.
 */
typedef struct LargeFile
{
	_Atomic uint64_t number;	/* 0: free */
	_Atomic uint64_t position;
	_Atomic uint64_t bytes;		/* written by its owner, before it has a position */
	_Atomic uint64_t sets;		/* of channels; written likewise */
	_Atomic uint32_t role;		/* the transaction's role */
} LargeFile;

struct HeraldLargeFiles
{
	_Atomic uint64_t bytes;		/* of all files */

	/* Written under spill_lock. */
	uint64		last_number;
	_Atomic int count;
	_Atomic int used;			/* all entries from here on are free */
	LargeFile	files[HERALD_LARGE_FILES_MAX];	/* in no particular order */
};

static LargeFile *find(uint64 number);
static HeraldPosition position_of(int i);
static void discard(LargeFile *file);


Size
herald_large_files_shared_size(void)
{
	return sizeof(HeraldLargeFiles);
}

void
herald_large_files_shared_init(void)
{
	memset((void *) herald_large_files, 0, sizeof(HeraldLargeFiles));
}

uint64
herald_large_files_enter(Oid role)
{
	LargeFile  *file = find(0);
	uint64		number;

	if (file == NULL)
		return 0;
	number = ++herald_large_files->last_number;
	atomic_store(&file->bytes, 0);
	atomic_store(&file->role, role);
	atomic_store(&file->position, HERALD_NOT_PLACED);
	atomic_store(&file->number, number);
	herald_large_files->used = Max(herald_large_files->used, (int) (file - herald_large_files->files) + 1);
	atomic_fetch_add(&herald_large_files->count, 1);
	return number;
}

bool
herald_large_files_has(uint64 number)
{
	return find(number) != NULL;
}

uint64
herald_large_files_size(uint64 number)
{
	LargeFile  *file = find(number);

	return file == NULL ? 0 : atomic_load(&file->bytes);
}

bool
herald_large_files_grow(uint64 number, uint64 bytes, uint64 bytes_max)
{
	LargeFile  *file = find(number);
	uint64_t	before = atomic_load(&herald_large_files->bytes);

	if (file == NULL)
		return false;
	do
	{
		if (bytes_max < bytes || before > bytes_max - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&herald_large_files->bytes, &before, before + bytes));
	atomic_fetch_add(&file->bytes, bytes);
	return true;
}

bool
herald_large_files_complete(uint64 number, uint64 bytes)
{
	LargeFile  *file = find(number);

	if (file == NULL)
		return false;
	atomic_fetch_sub(&herald_large_files->bytes, atomic_load(&file->bytes) - bytes);
	atomic_store(&file->bytes, bytes);
	return true;
}

bool
herald_large_files_place(uint64 number, HeraldPosition position, HeraldChannelSets sets)
{
	LargeFile  *file = find(number);

	if (file == NULL)
		return false;
	atomic_store(&file->sets, sets);
	atomic_store(&file->position, position);
	return true;
}

void
herald_large_files_delete_below(HeraldPosition position, HeraldPosition removed[HERALD_CHANNEL_SETS])
{
	for (int i = 0; i < herald_large_files->used; i++)
	{
		HeraldPosition at = position_of(i);
		HeraldChannelSets sets = atomic_load(&herald_large_files->files[i].sets);

		if (at >= position)
			continue;
		for (int set = 0; sets != 0; sets >>= 1, set++)
			if (sets & 1)
				removed[set] = Max(removed[set], at);
		discard(&herald_large_files->files[i]);
	}
}

HeraldPosition
herald_large_files_oldest(void)
{
	HeraldPosition oldest = HERALD_NOT_PLACED;

	for (int i = 0; i < herald_large_files->used; i++)
		oldest = Min(oldest, position_of(i));
	return oldest;
}

int
herald_large_files_count(void)
{
	return atomic_load_explicit(&herald_large_files->count, memory_order_relaxed);
}

uint64
herald_large_files_bytes(void)
{
	return atomic_load_explicit(&herald_large_files->bytes, memory_order_relaxed);
}

uint64
herald_large_files_bytes_from(HeraldPosition position)
{
	uint64		bytes = 0;

	for (int i = 0; i < atomic_load(&herald_large_files->used); i++)
	{
		LargeFile  *file = &herald_large_files->files[i];

		if (atomic_load(&file->number) != 0 && atomic_load(&file->position) >= position)
			bytes += atomic_load(&file->bytes);
	}
	return bytes;
}

uint64
herald_large_files_bytes_open(void)
{
	return herald_large_files_bytes_from(HERALD_NOT_PLACED);
}

/* An entry that gets another owner meanwhile may count for the wrong role, once. */
uint64
herald_large_files_bytes_open_of(Oid role)
{
	uint64		bytes = 0;

	for (int i = 0; i < atomic_load(&herald_large_files->used); i++)
	{
		LargeFile  *file = &herald_large_files->files[i];

		if (atomic_load(&file->number) != 0 && atomic_load(&file->position) == HERALD_NOT_PLACED &&
			atomic_load(&file->role) == role)
			bytes += atomic_load(&file->bytes);
	}
	return bytes;
}

/*
 * Without the lock: the result is for a view and the log, and other processes need the lock to
 * write.  An entry that gets another owner meanwhile is left out.
 */
uint64
herald_large_files_bytes_between(HeraldPosition from, HeraldPosition to)
{
	uint64		bytes = 0;

	if (herald_large_files_bytes() == 0)
		return 0;
	for (int i = 0; i < atomic_load(&herald_large_files->used); i++)
	{
		LargeFile  *file = &herald_large_files->files[i];
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
herald_large_files_read(uint64 number, uint64 offset, uint64 length, char *to)
{
	File		file;
	bool		success;

	/*
	 * Do not keep the file open while a slow client is served: a deleted file would still fill
	 * the disk.
	 */
	if (!herald_files_open(HERALD_FILE_LARGE, number, &file))
		return false;			/* given up */
	success = herald_files_read(file, to, length, offset);
	FileClose(file);
	return success;
}

/*
 * The entry with this number.  The caller owns it, and no other process removes it before its
 * batch is finished, so it exists unless memory was damaged.  Or, under spill_lock, a free
 * entry, with number 0. NULL: there is none.
 */
static LargeFile *
find(uint64 number)
{
	for (int i = 0; i < HERALD_LARGE_FILES_MAX; i++)
	{
		if (atomic_load(&herald_large_files->files[i].number) == number)
			return &herald_large_files->files[i];
	}
	return NULL;
}

/* Under spill_lock.  A free entry counts as not placed. */
static HeraldPosition
position_of(int i)
{
	LargeFile  *file = &herald_large_files->files[i];

	return atomic_load(&file->number) == 0 ? HERALD_NOT_PLACED : atomic_load(&file->position);
}

/* Under spill_lock. */
static void
discard(LargeFile *file)
{
	herald_files_doom(HERALD_FILE_LARGE, atomic_load(&file->number), atomic_load(&file->bytes));
	atomic_fetch_sub(&herald_large_files->bytes, atomic_load(&file->bytes));
	atomic_fetch_sub(&herald_large_files->count, 1);
	atomic_store(&file->number, 0);
	while (herald_large_files->used > 0 &&
		   atomic_load(&herald_large_files->files[herald_large_files->used - 1].number) == 0)
		herald_large_files->used--;
}
