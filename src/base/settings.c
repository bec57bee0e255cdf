/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <unistd.h>

#include "utils/guc.h"

#include "base/settings.h"
#include "core/queue.h"

/* Limits of settings; memory is reserved at start, so the upper limits only catch mistakes. */
#define QUEUE_MEMORY_MIN_KB		((int) (HERALD_RING_MIN / 1024))
#define QUEUE_MEMORY_MAX_KB		(8 * 1024 * 1024)
#define CHANNEL_MEMORY_MIN_KB	1024
#define CHANNEL_MEMORY_MAX_KB	(8 * 1024 * 1024)
#define WAKEUP_CONCURRENCY_MAX	65536
#define AT_REST_FACTOR			3
#define HEARTBEAT_MIN_MS		100
#define PAYLOAD_MAX				(256 * 1024 * 1024)

/* Set to their defaults by the definitions below. */
bool		herald_enabled;
int			herald_queue_memory_kb;
int			herald_channel_memory_kb;
int			herald_max_channel_memory_per_role_kb;
int			herald_max_uncommitted_per_role_kb;
int			herald_max_queue_size_kb;
int			herald_resume_wal_size_mb;
int			herald_retain_size_kb;
int			herald_max_read_wait_ms;
int			herald_heartbeat_ms;
int			herald_wakeup_concurrency;
int			herald_max_payload;

static bool check_queue_memory(int *newval, void **extra, GucSource source);
static bool check_wakeup_concurrency(int *newval, void **extra, GucSource source);
static bool check_heartbeat(int *newval, void **extra, GucSource source);


void
herald_settings_define(GucIntAssignHook heartbeat_changed)
{
	DefineCustomBoolVariable("herald.enabled",
							 "Sends notifications through pg_herald instead of the server's own queue.",
							 "Listeners receive notifications from both queues, whatever their own setting.",
							 &herald_enabled, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.heartbeat",
							"Sets how often a session that listens to channel herald_position receives its position at least.",
							"Also when nothing is sent, but not within a transaction. 0 turns this off.",
							&herald_heartbeat_ms, 0,
							0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, check_heartbeat, heartbeat_changed, NULL);

	DefineCustomIntVariable("herald.max_channel_memory_per_role",
							"Sets the maximum part of herald.channel_memory that the sessions of one role may use.",
							"All databases count together. Superusers are exempt. -1 means half of the room for channels. "
							"0 forbids LISTEN.",
							&herald_max_channel_memory_per_role_kb, -1,
							-1, MAX_KILOBYTES,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.max_payload",
							"Sets the maximum length of a notification's payload.",
							"The default is the server's own limit. Some client drivers cannot receive longer payloads.",
							&herald_max_payload, HERALD_PAYLOAD_MAX_OF_SERVER,
							0, PAYLOAD_MAX,
							PGC_SUSET, GUC_UNIT_BYTE, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.queue_memory",
							"Sets the shared memory for notifications that some listener has not read yet.",
							"The value is rounded down to a power of two.",
							&herald_queue_memory_kb, 16 * 1024,
							QUEUE_MEMORY_MIN_KB, QUEUE_MEMORY_MAX_KB,
							PGC_POSTMASTER, GUC_UNIT_KB, check_queue_memory, NULL, NULL);

	DefineCustomIntVariable("herald.max_queue_size",
							"Sets the maximum size of the notification queue, in memory and temporary files together.",
							"What does not fit into herald.queue_memory goes to temporary files. Listeners that are further "
							"behind than this miss notifications, and are told so or disconnected.",
							&herald_max_queue_size_kb, 8 * 1024 * 1024,
							0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.max_uncommitted_per_role",
							"Sets the maximum size of the files for notifications of one role's open transactions.",
							"Notifications go to a file when a transaction has too many for a part of herald.queue_memory. "
							"All databases count together. Superusers are exempt. -1 means half of herald.max_queue_size.",
							&herald_max_uncommitted_per_role_kb, -1,
							-1, INT_MAX,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.max_read_wait",
							"Sets the maximum time that herald.read() waits for a notification.",
							"A longer wait ends after this time. The call keeps its snapshot while it waits.",
							&herald_max_read_wait_ms, 60 * 1000,
							0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.resume_wal_size",
							"Sets how much WAL a session reads at most to resume logged channels.",
							"A client resumes by the WAL if it comes from another server, or if the server has been "
							"restarted. With more WAL since its position it cannot resume.",
							&herald_resume_wal_size_mb, 1024,
							0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.retain_size",
							"Sets the maximum size of temporary files with notifications that all listeners have read.",
							"Sessions that reconnect can read them again. 0 keeps only what is in herald.queue_memory. "
							"These files count for herald.max_queue_size, and are deleted before anything that a listener "
							"has not read.",
							&herald_retain_size_kb, 64 * 1024,
							0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.channel_memory",
							"Sets the shared memory for channels and their listeners.",
							"LISTEN fails when this memory is full.",
							&herald_channel_memory_kb, 16 * 1024,
							CHANNEL_MEMORY_MIN_KB, CHANNEL_MEMORY_MAX_KB,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("herald.wakeup_concurrency",
							"Sets the number of listeners that are woken at the same time.",
							"Each listener wakes the next one. -1 means the number of CPUs, and up to three times as many for a "
							"notification while nothing else is sent.",
							&herald_wakeup_concurrency, -1,
							-1, WAKEUP_CONCURRENCY_MAX,
							PGC_SIGHUP, 0, check_wakeup_concurrency, NULL, NULL);

	MarkGUCPrefixReserved("herald");
}

uint32
herald_settings_turns_at_rest(void)
{
	uint32		turns = herald_settings_turns();

	return herald_wakeup_concurrency > 0 ? turns : turns * AT_REST_FACTOR;
}

uint32
herald_settings_turns(void)
{
	long		cpus;

	if (herald_wakeup_concurrency > 0)
		return (uint32) herald_wakeup_concurrency;

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	return cpus > 0 ? (uint32) cpus : 1;
}

/* Round the value, so that SHOW reports the size in use. */
static bool
check_queue_memory(int *newval, void **extra, GucSource source)
{
	*newval = (int) (herald_queue_ring_size((uint64) *newval * 1024) / 1024);
	return true;
}

static bool
check_wakeup_concurrency(int *newval, void **extra, GucSource source)
{
	if (*newval == 0)
	{
		GUC_check_errdetail("At least one listener must be woken at a time.");
		GUC_check_errhint("Use -1 for the number of CPUs.");
		return false;
	}
	return true;
}

/* So that one session does not keep the watchdog, and itself, busy. */
static bool
check_heartbeat(int *newval, void **extra, GucSource source)
{
	if (*newval > 0 && *newval < HEARTBEAT_MIN_MS)
	{
		GUC_check_errdetail("The shortest heartbeat is %d ms.", HEARTBEAT_MIN_MS);
		GUC_check_errhint("Use 0 for none.");
		return false;
	}
	return true;
}
