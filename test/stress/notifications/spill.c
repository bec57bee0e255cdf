/*-------------------------------------------------------------------------
 *
 * spill.c
 *	  The stress test's spiller: src/notify/storage/spill.c, with memory in place of files.
 *
 * A file is memory that is found by its segment's number.  As with real files,
 * creating, opening and deleting are atomic (a mutex), writing and reading are
 * not, and a reader that has a file open can read it after it was deleted.  So
 * only the core's memory ordering separates writing the bytes from reading them.
 * Files are deleted when the spiller has released its lock, as in the module.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "stress.h"

#define FILES_MAX	1024
#define FAIL_ONE_IN	4			/* writes, when the disk is full */
#define BYTES_AT_ONCE	4096	/* then the disk may make us wait */

typedef struct File
{
	HeraldPosition segment;
	int			users;			/* under files_mutex; the name counts as one */
	char		bytes[];
} File;

/* The file system. */
static pthread_mutex_t files_mutex = PTHREAD_MUTEX_INITIALIZER;
static File *files[FILES_MAX];

/* Files that are to be deleted; under files_mutex. */
static struct
{
	HeraldPosition segment;
	bool		has_file;
}			doomed[FILES_MAX];
static int	doomed_count;
static int	doomed_files;		/* those that exist */

/* The thread that has it is the spiller. */
static pthread_mutex_t spill_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool has_lock;

/* The file that this thread reads. */
static _Thread_local File *reading;

static bool try_lock(void);
static void verify_files(bool made_room);
static void doom(HeraldPosition segment);
static bool is_any_doomed(void);
static bool delete_one(void);
static bool save(HeraldPosition segment);
static bool write_whole(File *file, HeraldPosition segment);
static void delete_file(HeraldPosition segment, bool was_counted);
static void count_dropped(void);
static void note_overrun(uint32_t slot, HeraldOverrunReason reason);
static File *file_create(HeraldPosition segment);
static File *file_open(HeraldPosition segment);
static void file_close(File *file);
static File **file_place(HeraldPosition segment);

static const HeraldRetentionCalls spill_calls = {
	.save = save,
	.remove = doom,
	.removing = is_any_doomed,
	.dropped = count_dropped,
	.overrun = note_overrun,
	.remove_large = large_remove,
};


void
spill_init(void)
{
	herald_large_table_init(&world.large);
	world.spiller = (HeraldSpiller) {
		.retention = &world.retention,.queue = world.queue,.wakeup = world.wakeup,
		.large = &world.large,.calls = &spill_calls
	};
}

/* As in the module some wait for the lock, and others do not. */
bool
spill_make_room(uint64_t *random)
{
	HeraldRetentionResult result = HERALD_RETENTION_AGAIN;

	dawdle(random);
	while (result == HERALD_RETENTION_AGAIN && herald_retention_can_move(world.queue))
	{
		HeraldPosition segment;

		if (one_in(random, 2))
			spill_lock();
		else if (!try_lock())
			return false;
		segment = atomic_load(&world.queue->tail);
		result = herald_retention_move(&world.spiller, &world.limits);
		if (segment < atomic_load(&world.queue->tail) && !herald_retention_has(&world.retention, segment))
			count(COUNT_RECYCLES);
		verify_files(result == HERALD_RETENTION_ROOM);
		spill_unlock();
		if (result == HERALD_RETENTION_AGAIN)
			(void) delete_one();
	}
	return !herald_queue_is_short(world.queue);
}

void
spill_trim(void)
{
	if (herald_retention_bytes(&world.retention) == 0 && herald_large_table_count(&world.large) == 0)
		return;
	spill_lock();
	(void) herald_retention_leave_room(&world.spiller, 0,
									   &(HeraldRetentionLimits) {UINT64_MAX, world.limits.retain_max});
	spill_unlock();
}

void
spill_lock(void)
{
	pthread_mutex_lock(&spill_mutex);
	has_lock = true;
}

static bool
try_lock(void)
{
	if (pthread_mutex_trylock(&spill_mutex) != 0)
		return false;
	has_lock = true;
	return true;
}

bool
spill_has_lock(void)
{
	return has_lock;
}

/* This thread deletes doomed files each second time, or if there are many; else others do. */
void
spill_unlock(void)
{
	static _Thread_local unsigned unlocked;
	bool		deletes;

	pthread_mutex_lock(&files_mutex);
	deletes = ++unlocked % 2 == 0 || doomed_count > FILES_MAX / 2;
	pthread_mutex_unlock(&files_mutex);
	has_lock = false;
	pthread_mutex_unlock(&spill_mutex);
	if (deletes)
		spill_delete_doomed();
}

void
spill_delete_doomed(void)
{
	while (delete_one())
		;
}

/* As long as there are segments, there is something to give up. */
bool
spill_leave_room(uint64_t bytes)
{
	bool		result = herald_retention_leave_room(&world.spiller, bytes, &world.limits);
	uint64_t	segments = herald_retention_bytes(&world.retention);

	verify_files(true);
	if (segments > 0 && !result)
		fail("there are segments, and none can be given up for %llu bytes", (unsigned long long) bytes);
	if (segments > 0 && !world.takes_unlocked &&
		segments + herald_large_table_bytes(&world.large) + bytes > world.limits.bytes_max)
		fail("there is no room for %llu bytes more", (unsigned long long) bytes);
	return result;
}

bool
spill_give_up(bool (*oldest) (const HeraldSpiller *spiller))
{
	bool		result;

	spill_lock();
	result = oldest(&world.spiller);
	verify_files(false);
	spill_unlock();
	return result;
}

/* A HeraldReadSpilled. */
bool
spill_read(HeraldPosition from, uint64_t length, char *to)
{
	HeraldPosition segment = from & ~(world.queue->segment_size - 1);

	if (!herald_retention_has(&world.retention, segment))
		return false;
	if (reading == NULL || reading->segment != segment)
	{
		spill_end_reading();
		reading = file_open(segment);
		if (reading == NULL)
			return false;		/* deleted just now */
	}
	memcpy(to, reading->bytes + (from - segment), length);
	count(COUNT_READ_SPILLED);
	return true;
}

void
spill_end_reading(void)
{
	if (reading != NULL)
		file_close(reading);
	reading = NULL;
}

/* Called by the spiller, or with all threads at the barrier. */
int
spill_count_files(void)
{
	int			found = 0;

	for (int i = 0; i < FILES_MAX; i++)
		found += files[i] != NULL;
	return found;
}

/*
 * Every segment of the saved stretch has its file, all other files are to be deleted,
 * and the limit is kept.
 */
static void
verify_files(bool made_room)
{
	uint64_t	bytes = herald_retention_bytes(&world.retention);
	int			expected;

	pthread_mutex_lock(&files_mutex);
	expected = spill_count_files() - doomed_files;
	pthread_mutex_unlock(&files_mutex);
	if (bytes != (uint64_t) expected * world.queue->segment_size)
		fail("%llu bytes are in files, but there are %d files",
			 (unsigned long long) bytes, expected);
	if (made_room && bytes > world.limits.bytes_max)
		fail("%llu bytes are in files", (unsigned long long) bytes);
}

static bool
save(HeraldPosition segment)
{
	File	   *file = file_create(segment);
	bool		written = write_whole(file, segment);

	file_close(file);
	if (written)
		count(COUNT_SPILLED);
	else
		delete_file(segment, false);
	return written;
}

/* Under spill_mutex.  There may be no file, if saving has failed. */
static void
doom(HeraldPosition segment)
{
	File	   *file;

	pthread_mutex_lock(&files_mutex);
	file = *file_place(segment);
	doomed[doomed_count].segment = segment;
	doomed[doomed_count].has_file = file != NULL && file->segment == segment;
	doomed_files += doomed[doomed_count++].has_file;
	pthread_mutex_unlock(&files_mutex);
}

static bool
is_any_doomed(void)
{
	bool		result;

	pthread_mutex_lock(&files_mutex);
	result = doomed_count > 0;
	pthread_mutex_unlock(&files_mutex);
	return result;
}

/* False: there is none to delete. */
static bool
delete_one(void)
{
	HeraldPosition segment = 0;
	bool		has_file = false;
	bool		found;

	pthread_mutex_lock(&files_mutex);
	found = doomed_count > 0;
	if (found)
	{
		segment = doomed[--doomed_count].segment;
		has_file = doomed[doomed_count].has_file;
	}
	pthread_mutex_unlock(&files_mutex);
	if (found)
		delete_file(segment, has_file);
	return found;
}

/* No atomic loads, as in the module: no other thread may recycle the segment meanwhile. */
static bool
write_whole(File *file, HeraldPosition segment)
{
	const char *bytes = (const char *) herald_queue_at(world.queue, segment);
	uint64_t	full_at = UINT64_MAX;
	static uint64_t random;		/* under spill_mutex */

	if (random == 0)
		random = run.seed | 1;
	if (world.disk_fills && one_in(&random, FAIL_ONE_IN))
		full_at = herald_random(&random) % (world.queue->segment_size / BYTES_AT_ONCE) * BYTES_AT_ONCE;

	for (uint64_t at = 0; at < world.queue->segment_size; at += BYTES_AT_ONCE)
	{
		if (at == full_at)
		{
			count(COUNT_DISK_FULL);
			return false;
		}
		dawdle(&random);
		memcpy(file->bytes + at, bytes + at, BYTES_AT_ONCE);
	}
	return true;
}

static void
count_dropped(void)
{
	count(COUNT_DROPPED);
}

static void
note_overrun(uint32_t slot, HeraldOverrunReason reason)
{
	for (uint32_t i = 0; i < LISTENERS; i++)
		if (world.listeners[i].slot == slot)
			atomic_store(&world.listeners[i].reported, 1);
	count(reason == HERALD_OVERRUN_LIMIT ? COUNT_OVERRUN_LIMIT : COUNT_OVERRUN_ERROR);
}

static File *
file_create(HeraldPosition segment)
{
	File	   *file = malloc(sizeof(File) + world.queue->segment_size);

	file->segment = segment;
	file->users = 2;
	pthread_mutex_lock(&files_mutex);
	if (*file_place(segment) != NULL)
		fail("segment %llu is to be written, and there is a file of %llu",
			 (unsigned long long) segment, (unsigned long long) (*file_place(segment))->segment);
	*file_place(segment) = file;
	pthread_mutex_unlock(&files_mutex);
	return file;
}

static File *
file_open(HeraldPosition segment)
{
	File	   *file;

	pthread_mutex_lock(&files_mutex);
	file = *file_place(segment);
	if (file != NULL && file->segment == segment)
		file->users++;
	else
		file = NULL;
	pthread_mutex_unlock(&files_mutex);
	return file;
}

static void
file_close(File *file)
{
	bool		is_last;

	pthread_mutex_lock(&files_mutex);
	is_last = --file->users == 0;
	pthread_mutex_unlock(&files_mutex);
	if (is_last)
		free(file);
}

static void
delete_file(HeraldPosition segment, bool was_counted)
{
	File	   *file;

	pthread_mutex_lock(&files_mutex);
	file = *file_place(segment);
	if (file != NULL && file->segment == segment)
		*file_place(segment) = NULL;
	else
		file = NULL;
	doomed_files -= was_counted;
	pthread_mutex_unlock(&files_mutex);
	if (file != NULL)
		file_close(file);
}

/* A file's place: there are more than files in use, so no older file may be in it. */
static File **
file_place(HeraldPosition segment)
{
	return &files[segment / world.queue->segment_size % FILES_MAX];
}
