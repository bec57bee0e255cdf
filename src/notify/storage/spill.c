/*-------------------------------------------------------------------------
 *
 * spill.c
 *	  The queue's older part, in temporary files.
 *
 * core/retention.c decides what is saved, deleted or given up; here it goes into files, one per
 * segment.  A listener that finds its position below the ring's tail reads on in the files, and
 * from there in memory, without a gap.  A listener whose files were deleted, because of
 * herald.max_queue_size or a full disk, is notified that it has missed messages (deliver.c).
 *
 * One process at a time writes, and says what is to be deleted, under spill_lock; readers
 * take no lock [F1].  The housekeeper deletes (files.c).  Another process deletes only what
 * it must: where the disk is full, or the limit is reached, or if there is no housekeeper.
 * One process at a time deletes, under deletion_lock, so that one whose disk is full waits for
 * what is being deleted.
 *
 * Nothing is saved, deleted or recycled of a damaged queue: its positions cannot be relied on,
 * and no process reads it.  The server deletes the files when it starts.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "base/channel_hash.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/suppress_messages.h"
#include "core/retention.h"
#include "core/stop_point.h"
#include "notify/storage/files.h"
#include "notify/storage/spill.h"

struct HeraldSpill
{
	HeraldRetention spilled;	/* written under spill_lock */

	/*
	 * Under spill_lock: failures to write a segment, since the last line
	 * about them, and the time of the last one.
	 */
	uint64		failures;
	uint64		failed_ms;
};

/*
 * On a full disk many segments a second may fail, for history that no session may ever ask for.  So
 * failures are logged when there was none for as long as this, and so is that it works again:
 * beside laggards, whose files make room, every other attempt may succeed.
 */
#define QUIET_MS		60000

/* A segment on its way to its file. */
typedef struct Saving
{
	HeraldPosition segment;
	ResourceOwner owner;
	File		file;			/* 0: none */
	bool		is_complete;
	bool		logs;			/* a failure */
} Saving;

/* See herald_spill_delete_in_return(). */
static bool owes_deletion;

static const HeraldSpiller *spiller(void);
static HeraldRetentionLimits limits_now(void);
static bool take_lock(bool waits);
static void trim_to(uint64 bytes_max);
static bool must_delete(void);
static bool write_segment(HeraldPosition segment);
static bool create_and_write(void *arg);
static bool close_file(void *arg);
static bool was_quiet(void);
static void note_outcome(bool is_complete);
static void delete_segment(HeraldPosition segment);
static void delete_large(uint64 number, uint64 bytes);
static void count_dropped(void);
static void report_overrun(uint32 slot, HeraldOverrunReason reason);

static const HeraldRetentionCalls calls = {
	.save = write_segment,
	.remove = delete_segment,
	.removing = herald_files_any_doomed,
	.dropped = count_dropped,
	.overrun = report_overrun,
	.remove_large = delete_large,
};


Size
herald_spill_shared_size(void)
{
	return sizeof(HeraldSpill);
}

void
herald_spill_shared_init(void)
{
	memset((void *) herald_spill, 0, sizeof(HeraldSpill));
}

bool
herald_spill_make_room(bool waits)
{
	HeraldRetentionLimits limits = limits_now();
	HeraldRetentionResult result = HERALD_RETENTION_AGAIN;

	/* Deleting can take long, or wait for another process that deletes. */
	if (herald_shared_is_damaged() || (!waits && must_delete()))
		return false;
	while (result == HERALD_RETENTION_AGAIN && herald_retention_can_move(herald_queue))
	{
		herald_spill_choose_place(waits);
		if (!take_lock(waits))
			return false;
		result = herald_retention_move(spiller(), &limits);
		LWLockRelease(herald_control->spill_lock);
		owes_deletion = true;
		if (!waits)
			break;
		if (result == HERALD_RETENTION_AGAIN)
			(void) herald_spill_delete_one();
	}
	return !herald_queue_is_short(herald_queue);
}

void
herald_spill_doom_unneeded(void)
{
	if (!herald_shared_is_damaged() && herald_spill_has_files())
		trim_to(PG_UINT64_MAX);
}

/* Only at start and after a reload: a large transaction that was accepted may exceed the limit. */
void
herald_spill_apply_limit(void)
{
	if (!herald_shared_is_damaged() && herald_spill_has_files())
		trim_to(herald_spill_bytes_max());
}

bool
herald_spill_delete_one(void)
{
	HeraldDoomedFile file;
	bool		found;

	if (!herald_files_any_doomed())
		return false;
	LWLockAcquire(herald_control->deletion_lock, LW_EXCLUSIVE);
	herald_spill_lock();
	found = herald_files_next_doomed(&file);
	LWLockRelease(herald_control->spill_lock);	/* herald_spill_unlock() could
												 * delete files */
	if (found)
	{
		herald_files_delete(&file);
		herald_spill_lock();
		herald_files_forget_doomed();
		LWLockRelease(herald_control->spill_lock);
	}
	LWLockRelease(herald_control->deletion_lock);
	return found;
}

bool
herald_spill_leave_room(uint64 bytes)
{
	HeraldPosition settled = atomic_load(&herald_queue->settled);
	HeraldRetentionLimits limits = limits_now();

	if (herald_shared_is_damaged())
		return false;

	/*
	 * Do not drop what listeners need if that would not free enough:
	 * unsettled files stay.
	 */
	if (herald_large_table_bytes_from(herald_large_table, settled) + bytes > herald_spill_bytes_max())
		return false;
	return herald_retention_leave_room(spiller(), bytes, &limits);
}

bool
herald_spill_free_disk(uint32 *deleted)
{
	uint32		before = *deleted;
	bool		result;

	if (herald_shared_is_damaged())
		return false;

	/*
	 * This waits for a process that is deleting, so that nothing is given up
	 * needlessly.
	 */
	if (herald_spill_delete_one() || herald_files_deleted() != before)
	{
		*deleted = herald_files_deleted();
		return true;
	}
	herald_spill_lock();
	result = herald_retention_give_up_oldest(spiller());
	herald_spill_unlock();
	(void) herald_spill_delete_one();
	*deleted = herald_files_deleted();
	return result;
}

bool
herald_spill_give_up_oldest_file(void)
{
	bool		result;

	if (herald_shared_is_damaged())
		return false;
	herald_spill_lock();
	result = herald_retention_give_up_oldest_large(spiller());
	herald_spill_unlock();
	return result;
}

HeraldPosition
herald_spill_kept_from(void)
{
	return herald_retention_kept_from(&herald_spill->spilled, herald_queue, 0);
}

bool
herald_spill_hold(uint32 channel_hash, HeraldPosition position, HeraldPosition *had_read)
{
	bool		result;

	if (herald_shared_is_damaged())
		return false;
	herald_spill_lock();
	result = herald_retention_hold(spiller(), herald_shared_my_slot(), herald_channel_set(channel_hash),
								   position, had_read);
	herald_spill_unlock();
	return result;
}

void
herald_spill_set_tablespaces(const char *names)
{
	herald_spill_lock();
	herald_files_set_tablespaces(names);
	herald_spill_unlock();
}

/*
 * Choose again whenever there are no files: meanwhile a tablespace may have been dropped, or
 * temp_tablespaces changed.
 */
void
herald_spill_choose_place(bool waits)
{
	char		names[HERALD_TABLESPACES_MAX];
	FileSet		set;

	if (herald_spill_has_files() || herald_files_have_folders() || !take_lock(waits))
		return;
	herald_files_get_tablespaces(names);
	herald_spill_unlock();
	HERALD_STOP_POINT("files-choose-place");
	set = herald_files_resolve(names);

	if (!take_lock(waits))
		return;
	if (!herald_spill_has_files() && !herald_files_have_folders())
		herald_files_set_place(&set);
	herald_spill_unlock();
}

void
herald_spill_lock(void)
{
	LWLockAcquire(herald_control->spill_lock, LW_EXCLUSIVE);
}

void
herald_spill_unlock(void)
{
	LWLockRelease(herald_control->spill_lock);
	herald_spill_delete_excess();
}

void
herald_spill_delete_in_return(void)
{
	if (owes_deletion && must_delete())
		(void) herald_spill_delete_one();
	owes_deletion = false;
}

/* The files are never more than herald.max_queue_size allows, those included that are to be deleted. */
void
herald_spill_delete_excess(void)
{
	while (must_delete() && herald_spill_delete_one())
		;
}

bool
herald_spill_read(HeraldPosition from, uint64 length, char *to)
{
	HeraldPosition segment = from & ~(herald_queue->segment_size - 1);
	File		file;
	bool		success;

	if (!herald_retention_has(&herald_spill->spilled, segment))
		return false;
	if (!herald_files_open(HERALD_FILE_SEGMENT, herald_queue_segment_number(herald_queue, segment), &file))
		return false;			/* deleted just now */
	success = herald_files_read(file, to, length, from - segment);
	FileClose(file);
	return success;
}

bool
herald_spill_has_files(void)
{
	return herald_retention_bytes(&herald_spill->spilled) > 0 || herald_large_table_count(herald_large_table) > 0;
}

uint64
herald_spill_bytes(void)
{
	return herald_spill_segment_bytes() + herald_large_table_bytes(herald_large_table);
}

uint64
herald_spill_segment_bytes(void)
{
	return herald_retention_bytes(&herald_spill->spilled);
}

/* Maximum bytes in files: herald.max_queue_size, less what is in memory. */
uint64
herald_spill_bytes_max(void)
{
	uint64		limit = (uint64) herald_max_queue_size_kb * 1024;

	return limit > herald_queue->ring_size ? limit - herald_queue->ring_size : 0;
}

static const HeraldSpiller *
spiller(void)
{
	static HeraldSpiller result;

	result.retention = &herald_spill->spilled;
	result.queue = herald_queue;
	result.wakeup = herald_wakeup;
	result.large = herald_large_table;
	result.calls = &calls;
	return &result;
}

static HeraldRetentionLimits
limits_now(void)
{
	HeraldRetentionLimits limits = {
		.bytes_max = herald_spill_bytes_max(),
		.retain_max = (uint64) herald_retain_size_kb * 1024
	};

	return limits;
}

static bool
take_lock(bool waits)
{
	if (!waits)
		return LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE);
	herald_spill_lock();
	return true;
}

static void
trim_to(uint64 bytes_max)
{
	HeraldRetentionLimits limits = {
		.bytes_max = bytes_max,
		.retain_max = limits_now().retain_max
	};

	herald_spill_lock();
	(void) herald_retention_leave_room(spiller(), 0, &limits);
	herald_spill_unlock();
}

static bool
must_delete(void)
{
	uint64		bytes_max = herald_spill_bytes_max();
	uint64		bytes = herald_spill_bytes();

	if (!herald_files_any_doomed())
		return false;
	return !atomic_load_explicit(&herald_control->housekeeper_runs, memory_order_relaxed) ||
		herald_files_too_many_doomed(bytes_max > bytes ? bytes_max - bytes : 0);
}

void
herald_spill_tidy(void)
{
	if (herald_spill_has_files() || herald_files_any_doomed() || !herald_files_have_folders())
		return;
	herald_spill_lock();
	if (!herald_spill_has_files() && !herald_files_any_doomed())
		herald_files_delete_folders();
	herald_spill_unlock();
}

/*
 * Write a segment of the ring to its file.  Errors may be logged; they reach neither the caller nor
 * its client.  A file that is not complete is emptied, not deleted: another process may try again
 * at once.
 */
static bool
write_segment(HeraldPosition segment)
{
	ResourceOwner caller = CurrentResourceOwner;
	int			limit = temp_file_limit;
	Saving		saving = {.segment = segment,.logs = was_quiet()};

	/* The file is neither this transaction's, nor any query's. */
	temp_file_limit = -1;
	saving.is_complete = saving.logs ? herald_with_messages_suppressed(create_and_write, &saving) :
		herald_with_errors_dropped(create_and_write, &saving);
	temp_file_limit = limit;
	CurrentResourceOwner = caller;	/* the current one cannot be deleted */

	if (saving.is_complete)
		herald_shared_count(HERALD_COUNT_SEGMENTS_SPILLED, 1);
	(void) herald_with_messages_suppressed(close_file, &saving);
	note_outcome(saving.is_complete);
	return saving.is_complete;
}

static bool
create_and_write(void *arg)
{
	Saving	   *saving = arg;
	bool		result;

	saving->owner = ResourceOwnerCreate(CurrentResourceOwner, "pg_herald spill");
	CurrentResourceOwner = saving->owner;
	HERALD_FAULT_POINT("spill-create");
	saving->file = herald_files_create(HERALD_FILE_SEGMENT,
									   herald_queue_segment_number(herald_queue, saving->segment));
	result = herald_files_write(saving->file,
								(const char *) herald_queue_at(herald_queue, saving->segment),
								herald_queue->segment_size, 0, saving->logs);
	HERALD_FAULT_POINT("spill-written");
	return result;
}

static bool
close_file(void *arg)
{
	Saving	   *saving = arg;
	bool		is_complete = saving->is_complete;

	if (saving->file > 0)
	{
		if (!is_complete)
			(void) herald_files_truncate(saving->file, 0);
		FileClose(saving->file);
	}
	if (saving->owner)
	{
		ResourceOwnerRelease(saving->owner, RESOURCE_RELEASE_BEFORE_LOCKS, is_complete, false);
		ResourceOwnerRelease(saving->owner, RESOURCE_RELEASE_LOCKS, is_complete, false);
		ResourceOwnerRelease(saving->owner, RESOURCE_RELEASE_AFTER_LOCKS, is_complete, false);
		ResourceOwnerDelete(saving->owner);
	}
	return true;
}

/* Have no segments failed for some time? */
static bool
was_quiet(void)
{
	return herald_spill->failures == 0 || herald_clock_ms() - herald_spill->failed_ms >= QUIET_MS;
}

static void
note_outcome(bool is_complete)
{
	if (!is_complete)
	{
		herald_spill->failures++;
		herald_spill->failed_ms = herald_clock_ms();
	}
	else if (herald_spill->failures > 0 && was_quiet())
	{
		ereport(LOG_SERVER_ONLY,
				(errmsg("pg_herald can write its temporary files again"),
				 errdetail("Before that it failed %llu times; the first failure was logged.",
						   (unsigned long long) herald_spill->failures),
				 errhidestmt(true)));
		herald_spill->failures = 0;
	}
}

static void
delete_segment(HeraldPosition segment)
{
	herald_files_doom(HERALD_FILE_SEGMENT, herald_queue_segment_number(herald_queue, segment),
					  herald_queue->segment_size);
}

static void
delete_large(uint64 number, uint64 bytes)
{
	herald_files_doom(HERALD_FILE_LARGE, number, bytes);
}

static void
count_dropped(void)
{
	herald_shared_count(HERALD_COUNT_SEGMENTS_DROPPED, 1);
}

static void
report_overrun(uint32 slot, HeraldOverrunReason reason)
{
	herald_shared_count(HERALD_COUNT_OVERRUNS, 1);
	ereport(LOG_SERVER_ONLY,
			(errmsg("listener with PID %d has missed notifications because of %s",
					(int) atomic_load(&herald_slots[slot].pid),
					reason == HERALD_OVERRUN_LIMIT ? "herald.max_queue_size" :
					"an error while writing temporary files"),
			 errdetail("It had not read them when the queue needed their room."),
			 errhidestmt(true)));	/* of a sender that has no part in it */
}

void
herald_spill_report_unreadable(uint32 slot)
{
	herald_shared_count(HERALD_COUNT_OVERRUNS, 1);
	ereport(LOG_SERVER_ONLY,
			(errmsg("listener with PID %d has missed notifications because of a missing or unreadable temporary file",
					(int) atomic_load(&herald_slots[slot].pid)),
			 errdetail("The file was deleted because herald.max_queue_size was reached or the disk was full, or the server log says why it could not be read."),
			 errhidestmt(true)));
}
