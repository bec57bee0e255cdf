/*-------------------------------------------------------------------------
 *
 * spill.c
 *	  The queue's older part, in temporary files.
 *
 * What is saved, deleted or given up is decided by core/retention.c; here it goes
 * into files, one per segment.  A listener that finds its position below the
 * ring's tail goes on in the files, and from there into memory, without a gap.
 * One whose files were deleted, because there would have been more than
 * herald.max_queue_size, or the disk is full, has missed something, and is told
 * so (deliver.c).
 *
 * One process at a time writes, and says what is to be deleted, under a lock that
 * others only try for; readers take none [F1].  The watchdog deletes (files.c).
 * Another process deletes only what it must: where the disk is full, or the limit
 * is reached, or if there is no watchdog.
 *
 * [F3] A process that waits for the lock says so first, and tries once more; one that
 * releases it looks for waiters after that.
 *
 * Of a damaged queue nothing is saved, deleted or recycled any more: its
 * positions cannot be relied on, and nobody reads it.  The server deletes the
 * files when it starts.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "base/bell.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/hush.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/retention.h"
#include "core/stop_point.h"
#include "notify/storage/files.h"
#include "notify/storage/large_files.h"
#include "notify/storage/room.h"
#include "notify/storage/spill.h"

/* The release of the lock is announced; in case that this was missed. */
#define LOCK_WAIT_MS	1000

/* How long to wait for others that are deleting something, and between two looks. */
#define DELETION_WAIT_MS	1000
#define DELETION_POLL_MS	1

struct HeraldSpill
{
	HeraldRetention spilled;		/* written under spill_lock */
	_Atomic uint64_t expired_to;	/* the same */
};

/* A segment on its way to its file. */
typedef struct Saving
{
	HeraldPosition segment;
	ResourceOwner owner;
	File		file;			/* 0: none */
	bool		is_complete;
} Saving;

static HeraldRetentionLimits limits_now(void);
static bool retains_segments(void);
static bool trim_to(uint64 bytes_max);
static bool must_delete(void);
static bool delete_some(void);
static void tidy(void);
static void release_lock(void);
static void forget_wait(int code, Datum arg);
static bool write_segment(HeraldPosition segment);
static bool create_and_write(void *arg);
static bool close_file(void *arg);
static uint64 number_of(HeraldPosition segment);
static void delete_segment(HeraldPosition segment);
static void count_dropped(void);
static void report_overrun(uint32 slot, HeraldOverrunReason reason);

static const HeraldRetentionCalls calls = {
	.save = write_segment,
	.remove = delete_segment,
	.removing = herald_files_any_doomed,
	.dropped = count_dropped,
	.overrun = report_overrun,
	.others_bytes = herald_large_files_bytes,
	.others_bytes_between = herald_large_files_bytes_between,
	.others_oldest = herald_large_files_oldest,
	.others_remove = herald_large_files_delete_below,
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
herald_spill_make_room(void)
{
	HeraldRetentionLimits limits = limits_now();
	HeraldRetentionResult result;

	if (herald_shared_is_damaged())
		return false;
	if (!retains_segments() && herald_retention_recycle(herald_queue, herald_wakeup))
		herald_room_announce();
	if (!herald_queue_is_short(herald_queue))
		return true;

	/* Before the lock: hundreds may be waiting for one commit, and would wake one another. */
	if (!herald_retention_can_move(herald_queue))
		return false;

	do
	{
		herald_spill_choose_place();
		if (!herald_spill_try_lock())
			return false;
		result = herald_retention_move(&herald_spill->spilled, herald_queue, herald_wakeup,
									   &limits, &calls);
		herald_spill_unlock();
	} while (result == HERALD_RETENTION_AGAIN && delete_some());

	/* Somebody is far behind: have it noticed how far. */
	if (herald_spill_has_files())
		herald_bell_ring();
	return result == HERALD_RETENTION_ROOM;
}

void
herald_spill_trim(void)
{
	if (herald_shared_is_damaged())
		return;
	if (!herald_spill_has_files())
	{
		tidy();
		return;
	}
	(void) trim_to(PG_UINT64_MAX);
}

/* Not whenever files are deleted: a large transaction that was accepted may be beyond the limit. */
bool
herald_spill_apply_limit(void)
{
	if (herald_shared_is_damaged() || !herald_spill_has_files())
		return true;
	return trim_to(herald_spill_bytes_max());
}

bool
herald_spill_delete_some(void)
{
	if (!herald_files_any_doomed() || !delete_some())
		return false;
	tidy();
	return true;
}

bool
herald_spill_needs_trim(void)
{
	return herald_spill_has_files() || herald_files_have_folders();
}

bool
herald_spill_leave_room(uint64 bytes)
{
	HeraldPosition settled = atomic_load(&herald_queue->settled);
	HeraldRetentionLimits limits = limits_now();

	if (herald_shared_is_damaged())
		return false;

	/* Nobody is to lose anything in vain: what is not settled cannot be given up. */
	if (herald_large_files_bytes_from(settled) + bytes > herald_spill_bytes_max())
		return false;
	return herald_retention_leave_room(&herald_spill->spilled, herald_queue, herald_wakeup, bytes,
									   &limits, &calls);
}

bool
herald_spill_free_disk(uint32 *deletions)
{
	uint64		end_ms = herald_clock_ms() + DELETION_WAIT_MS;
	uint32		before = *deletions;
	bool		result;

	if (herald_shared_is_damaged())
		return false;

	/* Nobody is to lose anything in vain.  But the process that deletes may be stopped. */
	while (herald_files_are_being_deleted() && herald_files_deletions() == before &&
		   herald_clock_ms() < end_ms)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 DELETION_POLL_MS, herald_wait(HERALD_WAIT_SPILL_WRITE));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	*deletions = herald_files_deletions();
	if (*deletions != before)
		return true;
	herald_spill_lock();
	result = herald_files_any_doomed() ||
		herald_retention_give_up_oldest(&herald_spill->spilled, herald_queue, herald_wakeup, &calls);
	herald_spill_unlock();
	(void) delete_some();
	return result;
}

bool
herald_spill_give_up_oldest_file(void)
{
	bool		result;

	if (herald_shared_is_damaged())
		return false;
	herald_spill_lock();
	result = herald_retention_give_up_oldest_other(&herald_spill->spilled, herald_queue,
												   herald_wakeup, &calls);
	herald_spill_unlock();
	return result;
}

HeraldPosition
herald_spill_kept_from(void)
{
	return herald_retention_kept_from(&herald_spill->spilled, herald_queue, 0);
}

HeraldPosition
herald_spill_expired_to(void)
{
	return atomic_load(&herald_spill->expired_to);
}

HeraldHoldResult
herald_spill_hold(uint32 channel_hash, HeraldPosition position, HeraldPosition *had_read)
{
	HeraldHoldResult result = herald_retention_hold(&herald_spill->spilled, herald_queue, herald_wakeup,
													herald_shared_my_slot(),
													herald_channel_set(channel_hash),
													position, had_read);

	/* A sender that found the border lock taken may be waiting. */
	if (result != HERALD_HOLD_AGAIN)
		herald_room_announce();
	return result;
}

HeraldPosition
herald_spill_oldest_file(void)
{
	HeraldPosition oldest;

	if (herald_large_files_count() == 0 || !herald_spill_try_lock())
		return PG_UINT64_MAX;
	oldest = herald_large_files_oldest();
	herald_spill_unlock();
	return oldest;
}

void
herald_spill_expire(HeraldPosition position)
{
	if (herald_shared_is_damaged() || !herald_spill_try_lock())
		return;
	atomic_store(&herald_spill->expired_to, position);
	herald_retention_expire(&herald_spill->spilled, herald_queue, herald_wakeup, position, &calls);
	herald_spill_unlock();
}

bool
herald_spill_set_tablespaces(const char *names)
{
	if (!herald_spill_try_lock())
		return false;
	herald_files_set_tablespaces(names);
	herald_spill_unlock();
	return true;
}

/*
 * Each time that there are none, so that a tablespace can be dropped, and
 * temp_tablespaces be changed, in the meantime.
 */
void
herald_spill_choose_place(void)
{
	char		names[HERALD_TABLESPACES_MAX];
	FileSet		set;

	/*
	 * A process that holds the lock now has chosen already.  Shared: one that only
	 * reads the names has not, and must not keep another from choosing.
	 */
	if (herald_spill_has_files() || herald_files_have_folders() ||
		!LWLockConditionalAcquire(herald_control->spill_lock, LW_SHARED))
		return;
	herald_files_get_tablespaces(names);
	herald_spill_unlock();
	HERALD_STOP_POINT("files-choose-place");
	set = herald_files_resolve(names);

	if (!herald_spill_try_lock())
		return;
	if (!herald_spill_has_files() && !herald_files_have_folders())
		herald_files_set_place(&set);
	herald_spill_unlock();
}

bool
herald_spill_try_lock(void)
{
	return LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE);
}

void
herald_spill_lock(void)
{
	ConditionVariable *released = &herald_control->spill_lock_released;

	if (herald_spill_try_lock())
		return;
	atomic_fetch_add(&herald_control->spill_lock_waiters, 1);
	PG_ENSURE_ERROR_CLEANUP(forget_wait, (Datum) 0);
	{
		for (;;)
		{
			/* [F3] announced before looking once more: pairs with release_lock() */
			herald_wait_prepare(HERALD_WAIT_QUEUE_ROOM, released);
			if (herald_spill_try_lock())
				break;
			herald_wait_sleep(HERALD_WAIT_QUEUE_ROOM, LOCK_WAIT_MS);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(forget_wait, (Datum) 0);
	herald_wait_end();
	forget_wait(0, (Datum) 0);
}

void
herald_spill_unlock(void)
{
	release_lock();
	if (!herald_files_any_doomed())
		return;
	herald_bell_ring();
	while (must_delete() && delete_some())
		;
	tidy();
}

bool
herald_spill_read(HeraldPosition from, uint64 length, char *to)
{
	HeraldPosition segment = from & ~(herald_queue->segment_size - 1);
	File		file;
	bool		success;

	if (!herald_retention_has(&herald_spill->spilled, segment))
		return false;
	if (!herald_files_open(HERALD_FILE_SEGMENT, number_of(segment), &file))
		return false;			/* deleted just now */
	success = herald_files_read(file, to, length, from - segment);
	FileClose(file);
	return success;
}

bool
herald_spill_has_files(void)
{
	return herald_retention_bytes(&herald_spill->spilled) > 0 || herald_large_files_count() > 0;
}

uint64
herald_spill_bytes(void)
{
	return herald_spill_segment_bytes() + herald_large_files_bytes();
}

uint64
herald_spill_segment_bytes(void)
{
	return herald_retention_bytes(&herald_spill->spilled);
}

/* That many may be in files: herald.max_queue_size, less what is in memory. */
uint64
herald_spill_bytes_max(void)
{
	uint64		limit = (uint64) herald_max_queue_size_kb * 1024;

	return limit > herald_queue->ring_size ? limit - herald_queue->ring_size : 0;
}

static HeraldRetentionLimits
limits_now(void)
{
	return (HeraldRetentionLimits) {
		.bytes_max = herald_spill_bytes_max(),
		.retain_max = (uint64) herald_retain_size_kb * 1024
	};
}

/* Is what nobody needs to be saved before its memory is used again? */
static bool
retains_segments(void)
{
	return (uint64) herald_retain_size_kb * 1024 >= herald_queue->segment_size;
}

/* False: another process has the lock. */
static bool
trim_to(uint64 bytes_max)
{
	HeraldRetentionLimits limits = {
		.bytes_max = bytes_max,
		.retain_max = limits_now().retain_max
	};

	if (!herald_spill_try_lock())
		return false;
	(void) herald_retention_leave_room(&herald_spill->spilled, herald_queue, herald_wakeup, 0,
									   &limits, &calls);
	herald_spill_unlock();
	return true;
}

/* The files are never more than herald.max_queue_size allows, those included that are to be deleted. */
static bool
must_delete(void)
{
	uint64		bytes_max = herald_spill_bytes_max();
	uint64		bytes = herald_spill_bytes();

	return !herald_bell_watchdog_runs() ||
		herald_files_too_many_doomed(bytes_max > bytes ? bytes_max - bytes : 0);
}

/* False: there is nothing to delete, or another process has the lock. */
static bool
delete_some(void)
{
	bool		in_steps = herald_bell_watchdog_runs() && CurrentResourceOwner != NULL;
	HeraldDoomedFiles files;
	FileSet		set;
	uint64		left;
	bool		found;

	if (!herald_spill_try_lock())
		return false;
	found = herald_files_next_doomed(&files, &set);
	release_lock();
	if (!found)
		return false;
	left = herald_files_delete(&files, &set, in_steps);
	if (!herald_spill_try_lock())
		return false;			/* found out the next time */
	herald_files_forget_doomed(&files, left);
	release_lock();
	return true;
}

/* When there are no files left: the folders go as well. */
static void
tidy(void)
{
	if (herald_spill_has_files() || herald_files_any_doomed() || !herald_files_have_folders() ||
		!herald_spill_try_lock())
		return;
	if (!herald_spill_has_files() && !herald_files_any_doomed())
		herald_files_delete_folders();
	release_lock();
}

static void
release_lock(void)
{
	LWLockRelease(herald_control->spill_lock);

	/* [F3] after the release, a full barrier: pairs with herald_spill_lock() */
	if (atomic_load(&herald_control->spill_lock_waiters) > 0)
		herald_wait_tell(&herald_control->spill_lock_released);
	herald_room_announce();
}

static void
forget_wait(int code, Datum arg)
{
	atomic_fetch_sub(&herald_control->spill_lock_waiters, 1);
}

/*
 * Write a segment of the ring to its file.  What fails here does not fail the
 * caller, and nothing of it is for the caller's client.  A file that is not
 * complete is left, empty: another process may try again at once.
 */
static bool
write_segment(HeraldPosition segment)
{
	ResourceOwner caller = CurrentResourceOwner;
	int			limit = temp_file_limit;
	Saving		saving = {.segment = segment};

	/* The file is neither this transaction's, nor any query's. */
	temp_file_limit = -1;
	saving.is_complete = herald_hushed(create_and_write, &saving);
	temp_file_limit = limit;
	CurrentResourceOwner = caller;	/* the current one cannot be deleted */

	/* The ring was read before this: the caller looks whether it was still there. */
	pg_read_barrier();
	if (saving.is_complete)
		herald_shared_count(HERALD_COUNT_SEGMENTS_SPILLED, 1);
	(void) herald_hushed(close_file, &saving);
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
	saving->file = herald_files_create(HERALD_FILE_SEGMENT, number_of(saving->segment));
	result = herald_files_write(saving->file,
								(const char *) herald_queue_at(herald_queue, saving->segment),
								herald_queue->segment_size, 0);
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

static void
delete_segment(HeraldPosition segment)
{
	herald_files_doom(HERALD_FILE_SEGMENT, number_of(segment), herald_queue->segment_size);
}

static uint64
number_of(HeraldPosition segment)
{
	return segment / herald_queue->segment_size;
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
herald_spill_count_unread(uint32 slot)
{
	herald_shared_count(HERALD_COUNT_OVERRUNS, 1);
	ereport(LOG_SERVER_ONLY,
			(errmsg("listener with PID %d has missed notifications because of a missing or unreadable temporary file",
					(int) atomic_load(&herald_slots[slot].pid)),
			 errdetail("The file was deleted because herald.max_queue_size was reached or the disk was full, or the server log says why it could not be read."),
			 errhidestmt(true)));
}
