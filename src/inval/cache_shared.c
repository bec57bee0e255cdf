/*-------------------------------------------------------------------------
 *
 * cache_shared.c
 *	  The shared memory of pg_herald_cache.
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

#include "base/compat.h"
#include "core/stop_point.h"
#include "inval/cache_shared.h"

#define LOCKS_TRANCHE	"pg_herald_cache"
#define LOCKS			2

HeraldInvalQueue *herald_inval_queue;
HeraldCacheUse *herald_cache_uses;
HeraldCacheControl *herald_cache_control;

static shmem_request_hook_type prev_shmem_request_hook;
static shmem_startup_hook_type prev_shmem_startup_hook;

static void request(void);
static void startup(void);
static Size uses_size(void);


void
herald_cache_shared_install_hooks(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup;
}

HeraldCacheUse *
herald_cache_my_use(void)
{
	return &herald_cache_uses[herald_my_slot()];
}

static void
request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(add_size(herald_inval_memory(HERALD_INVAL_SIZE, MaxBackends), HERALD_CACHE_LINE));
	RequestAddinShmemSpace(add_size(uses_size(), HERALD_CACHE_LINE));
	RequestAddinShmemSpace(add_size(sizeof(HeraldCacheControl), HERALD_CACHE_LINE));
	RequestNamedLWLockTranche(LOCKS_TRANCHE, LOCKS);
}

static void
startup(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	herald_inval_queue = ShmemInitStruct("pg_herald invalidations",
										 herald_inval_memory(HERALD_INVAL_SIZE, MaxBackends), &found);
	if (!found)
		herald_inval_init(herald_inval_queue, HERALD_INVAL_SIZE, MaxBackends);
	herald_cache_uses = ShmemInitStruct("pg_herald uses of caches", uses_size(), &found);
	if (!found)
		memset((void *) herald_cache_uses, 0, uses_size());
	herald_cache_control = ShmemInitStruct("pg_herald_cache control", sizeof(HeraldCacheControl), &found);
	if (!found)
	{
		LWLockPadded *locks = GetNamedLWLockTranche(LOCKS_TRANCHE);

		memset((void *) herald_cache_control, 0, sizeof(HeraldCacheControl));
		herald_cache_control->invalidation_lock = &locks[0].lock;
		herald_cache_control->reset_lock = &locks[1].lock;
		herald_cache_control->reset_time = GetCurrentTimestamp();
	}
	LWLockRelease(AddinShmemInitLock);
	HERALD_NO_MESSAGE_UNDER(herald_cache_control->invalidation_lock, "invalidation_lock");
}

static Size
uses_size(void)
{
	return mul_size(MaxBackends, sizeof(HeraldCacheUse));
}
