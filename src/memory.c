/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  Allocates the shared structures.
 *
 * There is one table of them, and two loops over it: one requests the memory, the other
 * attaches to it and, in the postmaster, initializes it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "api/reason_names.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/waits.h"
#include "memory.h"
#include "notify/channels/channel_map.h"
#include "notify/relay/relay.h"
#include "notify/storage/files.h"
#include "notify/storage/spill.h"
#include "testing/armed_points.h"

#define LOCKS_TRANCHE	"pg_herald"
#define LOCKS			6

typedef struct SharedStructure
{
	const char *name;
	void	  **address;
	Size		(*size) (void);
	void		(*init) (void);
} SharedStructure;

static Size queue_size(void);
static void queue_init(void);
static Size wakeup_size(void);
static void wakeup_init(void);
static Size slots_size(void);
static void slots_init(void);
static Size large_size(void);
static void large_init(void);
static Size control_size(void);
static void control_init(void);

/* The channel memory comes last: it stores its handle in the control structure. */
static const SharedStructure structures[] = {
	{"pg_herald queue", (void **) &herald_queue, queue_size, queue_init},
	{"pg_herald wakeup", (void **) &herald_wakeup, wakeup_size, wakeup_init},
	{"pg_herald slots", (void **) &herald_slots, slots_size, slots_init},
	{"pg_herald files", (void **) &herald_files, herald_files_shared_size, herald_files_shared_init},
	{"pg_herald spill", (void **) &herald_spill, herald_spill_shared_size, herald_spill_shared_init},
	{"pg_herald large", (void **) &herald_large_table, large_size, large_init},
	{"pg_herald control", (void **) &herald_control, control_size, control_init},
	{"pg_herald reasons", (void **) &herald_reason_names, herald_reason_names_shared_size, herald_reason_names_shared_init},
	{"pg_herald relay", (void **) &herald_relay, herald_relay_shared_size, herald_relay_shared_init},
	HERALD_STOP_POINTS_STRUCTURE
	{"pg_herald channel memory", &herald_channel_area, herald_channels_memory_size, herald_channels_create},
};

static shmem_request_hook_type prev_shmem_request_hook;
static shmem_startup_hook_type prev_shmem_startup_hook;

static void request(void);
static void startup(void);


void
herald_memory_install_hooks(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup;
}

static void
request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	for (int i = 0; i < lengthof(structures); i++)
		RequestAddinShmemSpace(add_size(structures[i].size(), HERALD_CACHE_LINE));
	RequestNamedLWLockTranche(LOCKS_TRANCHE, LOCKS);
}

static void
startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < lengthof(structures); i++)
	{
		bool		found;

		*structures[i].address = ShmemInitStruct(structures[i].name, structures[i].size(), &found);
		if (!found)
			structures[i].init();
	}
	LWLockRelease(AddinShmemInitLock);

	herald_tranche_name(herald_control->area_tranche, "pg_herald channel memory");
	herald_tranche_name(herald_control->channels_tranche, "pg_herald channels");
	herald_waits_define();
}

static Size
queue_size(void)
{
	return herald_queue_bytes(herald_queue_ring_size((uint64) herald_queue_memory_kb * 1024));
}

static void
queue_init(void)
{
	herald_queue_init(herald_queue, herald_queue_ring_size((uint64) herald_queue_memory_kb * 1024));
}

static Size
wakeup_size(void)
{
	return herald_wakeup_memory(MaxBackends);
}

static void
wakeup_init(void)
{
	herald_wakeup_init(herald_wakeup, MaxBackends, herald_settings_turns());
}

static Size
slots_size(void)
{
	return mul_size(MaxBackends + HERALD_WORKERS, sizeof(HeraldSlot));
}

static void
slots_init(void)
{
	memset((void *) herald_slots, 0, slots_size());
}

static Size
large_size(void)
{
	return sizeof(HeraldLargeTable);
}

static void
large_init(void)
{
	herald_large_table_init(herald_large_table);
}

static Size
control_size(void)
{
	return sizeof(HeraldControl);
}

static void
control_init(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(LOCKS_TRANCHE);

	memset((void *) herald_control, 0, control_size());
	herald_control->slots = MaxBackends + HERALD_WORKERS;
	if (!pg_strong_random(&herald_control->server_run, sizeof(herald_control->server_run)) ||
		!pg_strong_random(&herald_control->channel_seed, sizeof(herald_control->channel_seed)))
		elog(FATAL, "could not generate random bytes");
	herald_control->area_tranche = herald_tranche_new("pg_herald channel memory");
	herald_control->channels_tranche = herald_tranche_new("pg_herald channels");
	atomic_init(&herald_control->watchdog, -1);
	ConditionVariableInit(&herald_control->settled_moved);
	ConditionVariableInit(&herald_control->settings_released);
	SpinLockInit(&herald_control->last_logged.lock);
	herald_control->reset_lock = &locks[0].lock;
	herald_control->spill_lock = &locks[1].lock;
	herald_control->reasons_lock = &locks[2].lock;
	herald_control->scan_lock = &locks[3].lock;
	herald_control->deletion_lock = &locks[4].lock;
	herald_control->anchors.lock = &locks[5].lock;
	herald_control->reset_time = GetCurrentTimestamp();
}
