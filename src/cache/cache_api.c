/*-------------------------------------------------------------------------
 *
 * cache_api.c
 *	  Implements the interface for other modules that cache.
 *
 * pg_herald_cache_api.h describes each function.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cache/cache_api.h"
#include "cache/pg_herald_cache_api.h"
#include "core/inval_queue.h"
#include "inval/invalidate.h"
#include "inval/inval_reader.h"
#include "inval/subscribers.h"

struct HeraldCache
{
	char		name[NAMEDATALEN];
	uint32		hash;			/* of its name */
	HeraldCacheInvalidate invalidate;
	HeraldCacheReset reset;
	void	   *arg;
	HeraldCache *next;
};

/* The caches of this process. */
static HeraldCache *registered;

static HeraldCache *cache_register(const char *name, HeraldCacheInvalidate invalidate,
								   HeraldCacheReset reset, void *arg);
static void forget(uint32 cache_hash, uint32 key_hash, void *arg);
static bool may_keep(HeraldCache *cache, uint32 key_hash, Snapshot snapshot);
static void invalidate(HeraldCache *cache, uint32 key_hash);
static void invalidate_all(HeraldCache *cache);

static const HeraldCacheApi api = {
	.major = HERALD_CACHE_API_MAJOR,
	.size = sizeof(HeraldCacheApi),
	.cache_register = cache_register,
	.cache_hash = herald_invalidate_hash,
	.cache_accept = herald_inval_reader_accept,
	.cache_may_keep = may_keep,
	.cache_invalidate = invalidate,
	.cache_invalidate_all = invalidate_all,
};


void
herald_cache_api_publish(void)
{
	*(const HeraldCacheApi **) find_rendezvous_variable(HERALD_CACHE_API_VARIABLE) = &api;
}

static HeraldCache *
cache_register(const char *name, HeraldCacheInvalidate invalidate, HeraldCacheReset reset, void *arg)
{
	HeraldCache *cache;
	uint32		hash;

	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("name of a cache must have 1 to %d bytes", NAMEDATALEN - 1)));

	hash = herald_invalidate_hash(name, strlen(name));
	for (cache = registered; cache && strcmp(cache->name, name) != 0;)
		cache = cache->next;
	if (cache == NULL)
	{
		cache = MemoryContextAllocZero(TopMemoryContext, sizeof(HeraldCache));
		herald_invalidation_subscribe(forget, cache);
		strlcpy(cache->name, name, NAMEDATALEN);
		cache->hash = hash;
		cache->next = registered;
		registered = cache;
	}
	cache->invalidate = invalidate;
	cache->reset = reset;
	cache->arg = arg;
	return cache;
}

static void
forget(uint32 cache_hash, uint32 key_hash, void *arg)
{
	HeraldCache *cache = arg;

	if (cache_hash != cache->hash && cache_hash != HERALD_KEY_ALL)
		return;
	if (key_hash == HERALD_KEY_ALL)
		cache->reset(cache->arg);
	else
		cache->invalidate(key_hash, cache->arg);
}

static bool
may_keep(HeraldCache *cache, uint32 key_hash, Snapshot snapshot)
{
	if (snapshot == NULL && ActiveSnapshotSet())
		snapshot = GetActiveSnapshot();
	return !TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		herald_inval_reader_may_keep(cache->hash, key_hash, snapshot);
}

static void
invalidate(HeraldCache *cache, uint32 key_hash)
{
	herald_invalidate(cache->hash, key_hash);
}

static void
invalidate_all(HeraldCache *cache)
{
	herald_invalidate(cache->hash, HERALD_KEY_ALL);
}
