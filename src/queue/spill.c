/*-------------------------------------------------------------------------
 *
 * spill.c
 *	  The log's older part, in temporary files.
 *
 * What is saved, deleted or given up is decided by core/spilled.c; here it goes
 * into files, one per segment.  A listener that finds its position below the
 * ring's tail goes on in the files, and from there into memory, without a gap.
 * One whose files were deleted, because there would have been more than
 * herald.max_queue_size, or the disk is full, has missed something, and is told
 * so (deliver.c).
 *
 * One process at a time writes and deletes, under a lock that others only try
 * for.  Readers take none [F1].
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
#include "storage/latch.h"
#include "utils/resowner.h"

#include "compat/compat.h"
#include "core/spilled.h"
#include "core/stop_point.h"
#include "dispatch/damage.h"
#include "dispatch/watchdog.h"
#include "queue/files.h"
#include "queue/large.h"
#include "queue/spill.h"
#include "settings.h"
#include "shared.h"
#include "waits.h"

#define LOCK_STEP_MS	1

struct HeraldSpill
{
	HeraldSpilled spilled;		/* written under spill_lock */
};

static uint64 bytes_max(void);
static bool write_segment(HeraldPosition segment);
static void delete_segment(HeraldPosition segment);
static void count_dropped(void);
static void report_overrun(uint32 slot, HeraldOverrunReason reason);
static void file_name(char *name, HeraldPosition segment);

static const HeraldSpillCalls calls = {
	.save = write_segment,
	.remove = delete_segment,
	.dropped = count_dropped,
	.overrun = report_overrun,
	.others_bytes = herald_large_bytes,
	.others_oldest = herald_large_oldest,
	.others_remove = herald_large_delete_below,
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
	bool		made_room;

	if (herald_damage_is_known())
		return false;
	(void) herald_log_recycle(herald_log, herald_wakeup_needed(herald_wakeup, herald_log));
	if (!herald_log_is_short(herald_log))
		return true;

	herald_files_choose_place();
	if (!LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE))
		return false;
	made_room = herald_spilled_move(&herald_spill->spilled, herald_log, herald_wakeup,
									bytes_max(), &calls);
	LWLockRelease(herald_control->spill_lock);

	/* Somebody is far behind: have it noticed how far. */
	if (herald_spill_has_files())
		herald_watchdog_alert();
	return made_room;
}

void
herald_spill_trim(void)
{
	if (herald_damage_is_known() || !herald_spill_has_files() ||
		!LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE))
		return;
	herald_spilled_trim(&herald_spill->spilled, herald_log, herald_wakeup, &calls);
	LWLockRelease(herald_control->spill_lock);
}

void
herald_spill_leave_room(uint64 bytes)
{
	if (herald_damage_is_known())
		return;
	herald_spilled_leave_room(&herald_spill->spilled, herald_log, herald_wakeup, bytes,
							  bytes_max(), &calls);
}

void
herald_spill_lock(void)
{
	while (!LWLockConditionalAcquire(herald_control->spill_lock, LW_EXCLUSIVE))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LOCK_STEP_MS, herald_wait(HERALD_WAIT_QUEUE_ROOM));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

bool
herald_spill_give_up_oldest(void)
{
	bool		result;

	if (herald_damage_is_known())
		return false;
	herald_spill_lock();
	result = herald_spilled_give_up_oldest(&herald_spill->spilled, herald_log, herald_wakeup,
										   &calls);
	LWLockRelease(herald_control->spill_lock);
	return result;
}

bool
herald_spill_read(HeraldPosition from, uint64 length, char *to)
{
	HeraldPosition segment = from & ~(herald_log->segment_size - 1);
	char		name[HERALD_FILE_NAME_MAX];
	File		file;
	bool		success;

	if (!herald_spilled_has(&herald_spill->spilled, segment))
		return false;

	file_name(name, segment);
	if (!herald_files_open(name, &file))
		return false;			/* deleted just now */
	success = herald_files_read(file, to, length, from - segment);
	FileClose(file);
	return success;
}

bool
herald_spill_has_files(void)
{
	return herald_spilled_bytes(&herald_spill->spilled) > 0 || herald_large_count() > 0;
}

uint64
herald_spill_bytes(void)
{
	return herald_spilled_bytes(&herald_spill->spilled) + herald_large_bytes();
}

/* That many bytes may be in files: herald.max_queue_size, less what is in memory. */
static uint64
bytes_max(void)
{
	uint64		limit = (uint64) herald_max_queue_size_kb * 1024;

	return limit > herald_log->ring_size ? limit - herald_log->ring_size : 0;
}

/*
 * Write a segment of the ring to its file.  What fails here does not fail the
 * caller.
 */
static bool
write_segment(HeraldPosition segment)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner caller = CurrentResourceOwner;
	ResourceOwner owner = ResourceOwnerCreate(caller, "pg_herald spill");
	uint32		holdoff = InterruptHoldoffCount;
	char		name[HERALD_FILE_NAME_MAX];
	volatile bool written = false;

	file_name(name, segment);

	/* The file is not this transaction's. */
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		File		file;
		bool		complete;

		HERALD_FAULT_POINT("spill-create");
		file = herald_files_create(name);
		complete = herald_files_write(file, (const char *) herald_log_at(herald_log, segment),
									  herald_log->segment_size, 0);
		HERALD_FAULT_POINT("spill-written");
		FileClose(file);
		written = complete;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		InterruptHoldoffCount = holdoff;	/* we still hold the lock */
		error = CopyErrorData();
		FlushErrorState();
		ereport(LOG_SERVER_ONLY,
				(errcode(error->sqlerrcode), errmsg_internal("%s", error->message),
				 errhidestmt(true)));
		FreeErrorData(error);
	}
	PG_END_TRY();

	/* The ring was read before this: the caller looks whether it was still there. */
	pg_read_barrier();
	if (written)
		herald_shared_count(HERALD_COUNT_SEGMENTS_SPILLED, 1);

	CurrentResourceOwner = caller;
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, written, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_LOCKS, written, false);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_AFTER_LOCKS, written, false);
	ResourceOwnerDelete(owner);
	if (!written)
		herald_files_delete(name);
	return written;
}

static void
delete_segment(HeraldPosition segment)
{
	char		name[HERALD_FILE_NAME_MAX];

	file_name(name, segment);
	herald_files_delete(name);
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
					"an error in writing temporary files"),
			 errdetail("It had not read them when their place in the queue was needed."),
			 errhidestmt(true)));	/* of a sender that has no part in it */
}

void
herald_spill_count_unread(uint32 slot)
{
	herald_shared_count(HERALD_COUNT_OVERRUNS, 1);
	ereport(LOG_SERVER_ONLY,
			(errmsg("listener with PID %d has missed notifications because of a temporary file that is gone or unreadable",
					(int) atomic_load(&herald_slots[slot].pid)),
			 errdetail("It was given up for herald.max_queue_size or for a full disk, or else the log says what failed."),
			 errhidestmt(true)));
}

static void
file_name(char *name, HeraldPosition segment)
{
	snprintf(name, HERALD_FILE_NAME_MAX, "herald." UINT64_FORMAT, segment / herald_log->segment_size);
}
