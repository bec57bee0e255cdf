/*-------------------------------------------------------------------------
 *
 * large.c
 *	  The stress test's large transactions: src/notify/storage/large_files.c, in memory.
 *
 * core/retention calls them "others".  The table is written under the spiller's
 * lock; readers look a file up by its number, and can read an open file after it
 * was deleted.  As for segments, only the core's memory ordering separates writing
 * the bytes from reading them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define TABLE_SIZE	24			/* few, so that the oldest must make room now and then */
#define NOT_PLACED	UINT64_MAX
#define FAIL_ONE_IN	4			/* writes, when the disk is full */

typedef struct LargeFile
{
	uint64_t	number;
	uint64_t	length;			/* that counts for the limit, under spill_lock */
	_Atomic HeraldPosition position;	/* of the reference */
	int			users;			/* under files_mutex; the table counts as one */
	char		bytes[];
} LargeFile;

static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static LargeFile *table[TABLE_SIZE];	/* written under both locks */
static uint64_t last_number;

/* Numbers of the files that were given up, by their remainders: for the checks. */
#define GIVEN_UP_SIZE	4096
static _Atomic uint64_t given_up[GIVEN_UP_SIZE];

static _Thread_local bool missed_one;	/* see large_take_missed() */

static LargeFile *enter(uint64_t length);
static LargeFile **find(uint64_t number);
static void remove_file(LargeFile **place);
static void file_close(LargeFile *file);


/* herald_large_writer_create(), herald_large_writer_complete() */
uint64_t
large_write(const char *bytes, uint64_t length, uint64_t *random)
{
	LargeFile  *file;

	while ((file = enter(length)) == NULL)
	{
		if (!spill_give_up_oldest())
			dawdle(random);		/* all of them are under way */
	}

	/* A full disk: files that laggards have not read yet are given up. */
	while (world.disk_fills && one_in(random, FAIL_ONE_IN) && spill_give_up_oldest())
		count(COUNT_DISK_FULL);
	memcpy(file->bytes, bytes, length);

	spill_lock();
	spill_leave_room(length);
	file->length = length;
	spill_unlock();
	count(COUNT_LARGE);
	return file->number;
}

/* Without the lock: no other thread removes the file before its batch is finished. */
void
large_place(uint64_t number, HeraldPosition position)
{
	pthread_mutex_lock(&files_mutex);
	atomic_store(&(*find(number))->position, position);
	pthread_mutex_unlock(&files_mutex);
}

void
large_forget(uint64_t number)
{
	LargeFile **place;

	pthread_mutex_lock(&files_mutex);
	place = find(number);
	if (place == NULL)
		fail("large file %llu is gone before its transaction has ended", (unsigned long long) number);
	atomic_store(&(*place)->position, 0);
	pthread_mutex_unlock(&files_mutex);
}

int
large_count(void)
{
	int			found = 0;

	pthread_mutex_lock(&files_mutex);
	for (int i = 0; i < TABLE_SIZE; i++)
		found += table[i] != NULL;
	pthread_mutex_unlock(&files_mutex);
	return found;
}

uint64_t
large_bytes(void)
{
	uint64_t	bytes = 0;

	for (int i = 0; i < TABLE_SIZE; i++)
		bytes += table[i] != NULL ? table[i]->length : 0;
	return bytes;
}

uint64_t
large_bytes_between(HeraldPosition from, HeraldPosition to)
{
	uint64_t	bytes = 0;

	for (int i = 0; i < TABLE_SIZE; i++)
	{
		HeraldPosition at = table[i] != NULL ? atomic_load(&table[i]->position) : NOT_PLACED;

		bytes += at >= from && at < to ? table[i]->length : 0;
	}
	return bytes;
}

HeraldPosition
large_oldest(void)
{
	HeraldPosition oldest = NOT_PLACED;

	for (int i = 0; i < TABLE_SIZE; i++)
		if (table[i] != NULL && table[i]->position < oldest)
			oldest = table[i]->position;
	return oldest;
}

/* A file at or above the position that is needed counts as given up. */
void
large_delete_below(HeraldPosition position, HeraldPosition removed[HERALD_CHANNEL_SETS])
{
	HeraldPosition needed = herald_wakeup_needed(world.wakeup, world.queue);

	if (!spill_has_lock())
		fail("files are deleted by a thread that is not the spiller");
	for (int i = 0; i < TABLE_SIZE; i++)
	{
		HeraldPosition at = table[i] != NULL ? atomic_load(&table[i]->position) : NOT_PLACED;

		if (at >= position)
			continue;
		if (at >= atomic_load(&world.queue->settled))
			fail("large file %llu is deleted before its listeners are marked",
				 (unsigned long long) table[i]->number);
		if (at >= needed)
			atomic_store(&given_up[table[i]->number % GIVEN_UP_SIZE], table[i]->number);
		for (int set = 0; set < HERALD_CHANNEL_SETS; set++)
			removed[set] = at > removed[set] ? at : removed[set];
		remove_file(&table[i]);
	}
}

/* A HeraldReadFile. */
bool
large_read(uint64_t number, uint64_t offset, uint64_t length, char *to)
{
	LargeFile  *file = NULL;
	LargeFile **place;

	pthread_mutex_lock(&files_mutex);
	place = find(number);
	if (place != NULL)
	{
		file = *place;
		file->users++;
	}
	pthread_mutex_unlock(&files_mutex);
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

/* NULL: the table is full. */
static LargeFile *
enter(uint64_t length)
{
	LargeFile  *file = malloc(sizeof(LargeFile) + length);
	int			i = 0;

	spill_lock();
	*file = (LargeFile) {.number = ++last_number,.position = NOT_PLACED,.users = 1};
	pthread_mutex_lock(&files_mutex);
	while (i < TABLE_SIZE && table[i] != NULL)
		i++;
	if (i < TABLE_SIZE)
		table[i] = file;
	pthread_mutex_unlock(&files_mutex);
	spill_unlock();
	if (i < TABLE_SIZE)
		return file;
	free(file);
	return NULL;
}

/* Under one of the locks.  NULL: it is not there. */
static LargeFile **
find(uint64_t number)
{
	for (int i = 0; i < TABLE_SIZE; i++)
		if (table[i] != NULL && table[i]->number == number)
			return &table[i];
	return NULL;
}

static void
remove_file(LargeFile **place)
{
	LargeFile  *file = *place;

	pthread_mutex_lock(&files_mutex);
	*place = NULL;
	pthread_mutex_unlock(&files_mutex);
	file_close(file);
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
