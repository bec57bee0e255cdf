/*-------------------------------------------------------------------------
 *
 * large_writer.c
 *	  The file of a large transaction: its owner's side.
 *
 * A file counts for herald.max_queue_size as it grows.  While there is room, the owner takes
 * it without a lock; it needs spill_lock only to give up older data.  So segments, which are
 * counted under that lock, may exceed the limit by one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/storage/files.h"
#include "notify/storage/large_writer.h"
#include "notify/storage/spill.h"

static uint64 enter(void);
static void check_role_limit(uint64 bytes);
static bool take(uint64 number, uint64 bytes);
herald_noreturn static void report_full(uint64 own);
herald_noreturn static void report_lost(uint64 number);
static void log_lost(uint64 number);


File
herald_large_writer_create(uint64 *number)
{
	herald_spill_choose_place(true);
	*number = enter();
	HERALD_STOP_POINT("large-entered");
	return herald_files_create(HERALD_FILE_LARGE, *number);
}

void
herald_large_writer_grow(uint64 number, uint64 bytes, bool forced)
{
	uint64		open_max = (uint64) herald_max_queue_size_kb * 1024 / 4 * 3;
	bool		taken;

	if (!herald_large_table_has(herald_large_table, number))
		report_lost(number);

	if (!forced)
		check_role_limit(bytes);

	/*
	 * The last quarter is reserved for committed notifications: open
	 * transactions cannot displace these.
	 */
	if (!forced && herald_large_table_bytes_open(herald_large_table) + bytes > open_max)
		report_full(herald_large_table_size(herald_large_table, number));
	taken = take(number, bytes);
	if (!taken)
	{
		herald_spill_lock();
		while (!taken && herald_spill_leave_room(bytes))
			taken = take(number, bytes);
		herald_spill_unlock();
	}
	if (!taken && forced)
		taken = herald_large_table_grow(herald_large_table, number, bytes, PG_UINT64_MAX);
	if (!taken)
		report_full(herald_large_table_size(herald_large_table, number));
	herald_spill_delete_excess();
}

uint64
herald_large_writer_bytes_max(void)
{
	return Min((uint64) herald_max_queue_size_kb * 1024 / 2, herald_spill_bytes_max());
}

void
herald_large_writer_complete(uint64 number, uint64 bytes)
{
	if (!herald_large_table_complete(herald_large_table, number, bytes))
		report_lost(number);
}

void
herald_large_writer_place(uint64 number, HeraldPosition position, HeraldChannelSets sets)
{
	/*
	 * Without the entry, listeners that reach the reference are notified that
	 * they have missed messages.
	 */
	if (!herald_large_table_place(herald_large_table, number, position, sets))
		log_lost(number);
}

void
herald_large_writer_forget(uint64 number)
{
	/*
	 * A position below all others: the next process that looks has it
	 * deleted.
	 */
	if (!herald_large_table_place(herald_large_table, number, 0, 0))
		log_lost(number);
}

static uint64
enter(void)
{
	uint64		number;

	do
	{
		CHECK_FOR_INTERRUPTS();
		herald_spill_lock();
		number = herald_large_table_enter(herald_large_table, GetSessionUserId());
		herald_spill_unlock();
	} while (number == 0 && herald_spill_give_up_oldest_file());
	if (number == 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many large transactions at the same time"),
				 errdetail("At most %d transactions can have a file for notifications that do not fit into memory.", HERALD_LARGE_FILES_MAX)));
	return number;
}

/*
 * Check that the role's limit allows `bytes` more bytes.  Concurrent sessions may exceed the
 * limit.
 */
static void
check_role_limit(uint64 bytes)
{
	Oid			role = GetSessionUserId();
	uint64		limit = herald_max_uncommitted_per_role_kb >= 0 ?
		(uint64) herald_max_uncommitted_per_role_kb * 1024 : (uint64) herald_max_queue_size_kb * 1024 / 2;
	uint64		before = herald_large_table_bytes_open_of(herald_large_table, role);

	if (before + bytes <= limit || superuser_arg(role))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many uncommitted notifications of role \"%s\"", GetUserNameFromId(role, false)),
			 errdetail("The files of its open transactions have %llu kB, and need %llu kB more; herald.max_uncommitted_per_role allows %llu kB.",
					   (unsigned long long) before / 1024, (unsigned long long) (bytes + 1023) / 1024,
					   (unsigned long long) limit / 1024),
			 errhint("Try again when its other transactions have ended, send fewer notifications in one transaction, or increase herald.max_uncommitted_per_role for this role.")));
}

/* Count `bytes` more bytes.  False: they would exceed herald.max_queue_size. */
static bool
take(uint64 number, uint64 bytes)
{
	uint64		max = herald_spill_bytes_max();
	uint64		segments = herald_spill_segment_bytes();

	return segments <= max && herald_large_table_grow(herald_large_table, number, bytes, max - segments);
}

/* This transaction's file, which has `own` bytes up to now, would exceed herald.max_queue_size. */
static void
report_full(uint64 own)
{
	uint64		all = herald_spill_bytes();
	uint64		open = herald_large_table_bytes_open(herald_large_table);

	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("notifications of open transactions would exceed herald.max_queue_size (%d kB)",
					herald_max_queue_size_kb),
			 errdetail("Queue memory takes %llu kB of it, the file of this transaction %llu kB, the files of other open transactions %llu kB, and notifications that are being committed or not read yet %llu kB.",
					   (unsigned long long) herald_queue->ring_size / 1024,
					   (unsigned long long) own / 1024,
					   (unsigned long long) (open > own ? open - own : 0) / 1024,
					   (unsigned long long) (all > open ? all - open : 0) / 1024),
			 errhint("Try again when other transactions have ended, send fewer notifications in one transaction, or increase herald.max_queue_size.")));
}

static void
report_lost(uint64 number)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("pg_herald has lost track of its temporary file %llu",
					(unsigned long long) number),
			 errdetail("The file holds the notifications of this transaction.")));
}

static void
log_lost(uint64 number)
{
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("pg_herald has lost track of its temporary file %llu",
					(unsigned long long) number),
			 errdetail("Listeners that would read the file are told that they have missed notifications."),
			 errhidestmt(true)));
}
