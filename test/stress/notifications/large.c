/*-------------------------------------------------------------------------
 *
 * large.c
 *	  The stress test's large transactions: src/notify/storage/large_writer.c, with memory in
 *	  place of files.
 *
 * The table is the core's.  A file is memory that is found by its number; a reader that has a
 * file open can read it after it was deleted.  As for segments, only the core's memory
 * ordering separates writing the bytes from reading them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define FAIL_ONE_IN	4			/* writes, when the disk is full */

typedef struct LargeFile
{
	uint64_t	number;
	uint64_t	length;
	_Atomic HeraldPosition position;	/* of the reference, for the checks */
	int			users;			/* under files_mutex; the name counts as one */
	char		bytes[];
} LargeFile;

/* The file system.  A file exists only while its number is in the table. */
static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static LargeFile *files[HERALD_LARGE_FILES_MAX];

/* Numbers of the files that were given up, by their remainders: for the checks. */
#define GIVEN_UP_SIZE	4096
static _Atomic uint64_t given_up[GIVEN_UP_SIZE];

static _Thread_local LargeFile *own;	/* of this thread's transaction */
static _Thread_local bool missed_one;	/* see large_take_missed() */

static uint64_t enter(Writer *writer);
static void grow(uint64_t number, uint64_t bytes);
static bool take(uint64_t number, uint64_t bytes);
static LargeFile *file_create(uint64_t number, uint64_t length);
static LargeFile *file_open(uint64_t number);
static void file_close(LargeFile *file);
static LargeFile **find(uint64_t number);


/* It takes more room than it needs in the end. */
uint64_t
large_write(Writer *writer, uint64_t length)
{
	uint64_t	number = enter(writer);

	own = file_create(number, length);

	/* A full disk: files that laggards have not read yet are given up. */
	while (world.disk_fills && one_in(&writer->random, FAIL_ONE_IN) &&
		   spill_give_up(herald_retention_give_up_oldest))
		count(COUNT_DISK_FULL);
	grow(number, length / 2);
	grow(number, length);
	memcpy(own->bytes, writer->bytes, length);

	if (!herald_large_table_complete(&world.large, number, length) ||
		herald_large_table_size(&world.large, number) != length ||
		herald_large_table_bytes_open_of(&world.large, writer->id) != length)
		fail("large file %llu of writer %u does not count with its %llu bytes",
			 (unsigned long long) number, writer->id, (unsigned long long) length);
	count(COUNT_LARGE);
	return number;
}

/* Without the lock: no other thread removes the file before its batch is finished. */
void
large_place(uint64_t number, HeraldPosition position, uint64_t sets)
{
	atomic_store(&own->position, position);
	if (!herald_large_table_place(&world.large, number, position, sets))
		fail("large file %llu is gone before its transaction has ended", (unsigned long long) number);
}

int
large_count_files(void)
{
	int			found = 0;

	pthread_mutex_lock(&files_mutex);
	for (int i = 0; i < HERALD_LARGE_FILES_MAX; i++)
		found += files[i] != NULL;
	pthread_mutex_unlock(&files_mutex);
	return found;
}

/* A file at or above the position that is needed counts as given up. */
void
large_remove(uint64_t number, uint64_t bytes)
{
	LargeFile  *file = file_open(number);
	HeraldPosition position;

	if (!spill_has_lock())
		fail("files are deleted by a thread that is not the spiller");
	if (file == NULL || file->length != bytes)
		fail("large file %llu, to be deleted, is not there, or has not %llu bytes",
			 (unsigned long long) number, (unsigned long long) bytes);
	position = atomic_load(&file->position);
	if (position >= atomic_load(&world.queue->settled))
		fail("large file %llu is deleted before its listeners are marked", (unsigned long long) number);
	if (position >= herald_wakeup_needed(world.wakeup, world.queue))
		atomic_store(&given_up[number % GIVEN_UP_SIZE], number);
	pthread_mutex_lock(&files_mutex);
	*find(number) = NULL;
	file->users--;
	pthread_mutex_unlock(&files_mutex);
	file_close(file);
}

/* A HeraldReadFile. */
bool
large_read(uint64_t number, uint64_t offset, uint64_t length, char *to)
{
	LargeFile  *file = file_open(number);

	if (file == NULL)
	{
		missed_one = atomic_load(&given_up[number % GIVEN_UP_SIZE]) == number;
		return false;
	}
	memcpy(to, file->bytes + offset, length);
	file_close(file);
	count(COUNT_READ_LARGE);
	return true;
}

bool
large_take_missed(void)
{
	bool		result = missed_one;

	missed_one = false;
	return result;
}

static uint64_t
enter(Writer *writer)
{
	uint64_t	number;

	for (;;)
	{
		spill_lock();
		number = herald_large_table_enter(&world.large, writer->id);
		spill_unlock();
		if (number != 0)
			return number;
		if (!spill_give_up(herald_retention_give_up_oldest_large))
			dawdle(&writer->random);	/* all of them are under way */
	}
}

/* If nothing can be given up, beyond the limit. */
static void
grow(uint64_t number, uint64_t bytes)
{
	bool		taken;

	if (world.takes_unlocked && take(number, bytes))
		return;
	spill_lock();
	do
		taken = spill_leave_room(bytes);
	while (taken && !take(number, bytes));
	if (!taken && !herald_large_table_grow(&world.large, number, bytes, UINT64_MAX))
		fail("large file %llu is gone while it is written", (unsigned long long) number);
	spill_unlock();
}

static bool
take(uint64_t number, uint64_t bytes)
{
	uint64_t	segments = herald_retention_bytes(&world.retention);

	return segments <= world.limits.bytes_max &&
		herald_large_table_grow(&world.large, number, bytes, world.limits.bytes_max - segments);
}

static LargeFile *
file_create(uint64_t number, uint64_t length)
{
	LargeFile  *file = malloc(sizeof(LargeFile) + length);

	*file = (LargeFile) {.number = number,.length = length,.position = HERALD_NOT_PLACED,.users = 1};
	pthread_mutex_lock(&files_mutex);
	if (find(number) != NULL)
		fail("large file %llu is to be created, and exists", (unsigned long long) number);
	*find(0) = file;
	pthread_mutex_unlock(&files_mutex);
	return file;
}

/* NULL: it does not exist. */
static LargeFile *
file_open(uint64_t number)
{
	LargeFile **found;
	LargeFile  *file = NULL;

	pthread_mutex_lock(&files_mutex);
	found = find(number);
	if (found != NULL)
	{
		file = *found;
		file->users++;
	}
	pthread_mutex_unlock(&files_mutex);
	return file;
}

static void
file_close(LargeFile *file)
{
	bool		is_last;

	pthread_mutex_lock(&files_mutex);
	is_last = --file->users == 0;
	pthread_mutex_unlock(&files_mutex);
	if (is_last)
		free(file);
}

/* Under files_mutex.  The file's place, or a free one for number 0.  NULL: there is none. */
static LargeFile **
find(uint64_t number)
{
	for (int i = 0; i < HERALD_LARGE_FILES_MAX; i++)
		if ((files[i] == NULL ? 0 : files[i]->number) == number)
			return &files[i];
	return NULL;
}
