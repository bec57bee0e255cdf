/*-------------------------------------------------------------------------
 *
 * cache_shared.h
 *	  The shared memory of pg_herald_cache.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CACHE_SHARED_H
#define HERALD_CACHE_SHARED_H

#include "postgres.h"

#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "core/inval_queue.h"

/* One per backend, which alone writes it once it has used a cache. */
typedef struct HeraldCacheUse
{
	/* Before it joins the queue, and after it leaves. */
	_Atomic int32_t _Alignas(HERALD_CACHE_LINE) pid;	/* 0: it uses no cache */
	_Atomic int32_t process;	/* its process number */
	_Atomic uint32_t database;
	_Atomic uint32_t role;

	_Atomic uint32_t values;	/* that it caches */
	_Atomic uint64_t bytes;		/* memory for these values */
	_Atomic uint64_t hits;
	_Atomic uint64_t misses;
	_Atomic uint64_t invalidations; /* messages of its database that it has
									 * read */
	_Atomic uint64_t resets;
} HeraldCacheUse;

/* The counters of herald.cache_stats; their order is that of its columns. */
typedef enum HeraldCacheCounter
{
	HERALD_CACHE_INVALIDATIONS, /* sent */
	HERALD_CACHE_RESETS,		/* of sessions that missed invalidations */
	HERALD_CACHE_CATCH_UPS,		/* turns given to sessions that were far
								 * behind */
	HERALD_CACHE_TURNS_RESCUED, /* taken back */
	HERALD_CACHE_COUNTERS
} HeraldCacheCounter;

typedef struct HeraldCacheControl
{
	LWLock	   *invalidation_lock;	/* constant; for inserting in
									 * herald_inval_queue, joining it, and
									 * taking back its turn */

	/* Sessions whose messages were overwritten, and concerned their database. */
	_Atomic uint64_t resets;

	/*
	 * For herald.reset_cache_stats(): the values of the counters at the last
	 * reset, and its time.
	 */
	LWLock	   *reset_lock;		/* constant */
	uint64		reset_counters[HERALD_CACHE_COUNTERS];
	TimestampTz reset_time;
} HeraldCacheControl;

extern HeraldInvalQueue *herald_inval_queue;
extern HeraldCacheUse *herald_cache_uses;	/* as many as the queue has slots */
extern HeraldCacheControl *herald_cache_control;

/* Request shared memory, and initialize it.  Called once, in _PG_init(). */
extern void herald_cache_shared_install_hooks(void);

/* This backend's element, which has the number of its slot in the queue. */
extern HeraldCacheUse *herald_cache_my_use(void);

#endif							/* HERALD_CACHE_SHARED_H */
