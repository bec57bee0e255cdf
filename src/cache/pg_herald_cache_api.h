/*-------------------------------------------------------------------------
 *
 * pg_herald_cache_api.h
 *	  The C interface of pg_herald_cache for other modules.
 *
 * A module that uses it can be built and loaded without pg_herald_cache: it checks at run time
 * whether that is loaded.
 *
 *		const HeraldCacheApi *caches = herald_cache_api_find();
 *
 *		if (caches)
 *			caches->cache_accept();
 *
 * herald_cache_api_find() may be called from _PG_init() on, by any module that is loaded
 * after pg_herald_cache, and always once the server runs.
 *
 * All functions must be called in a backend (not in the postmaster, unless a function's
 * comment allows it), from the main thread, outside of signal handlers.  "Throws" means
 * ereport(ERROR).  docs/c-api.md has examples.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_HERALD_CACHE_API_H
#define PG_HERALD_CACHE_API_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/snapshot.h"

/*
 * A new major version is a different interface.  Within a major version, functions are only
 * added at the end: check HERALD_CACHE_API_HAS() before using one that was added later.
 */
#define HERALD_CACHE_API_MAJOR	1

#define HERALD_CACHE_API_HAS(api, function) \
	((api)->size >= offsetof(HeraldCacheApi, function) + sizeof((api)->function))

/* A cache that a module has registered.  Lives as long as the process. */
typedef struct HeraldCache HeraldCache;

/*
 * Drop the values cached under this key's hash, in this process.  Called when invalidations
 * are read: from cache_accept(), at the beginning of a statement, before a commit, or while a
 * backend is idle; and at once for keys that this process itself invalidates.  Must not throw,
 * read catalogs, or call this interface.
 */
typedef void (*HeraldCacheInvalidate) (uint32 key_hash, void *arg);

/*
 * Drop the whole cache, in this process.  Called when it was invalidated as a whole, and when
 * invalidations were missed.  The same restrictions apply.
 */
typedef void (*HeraldCacheReset) (void *arg);

typedef struct HeraldCacheApi
{
	uint32		major;			/* HERALD_CACHE_API_MAJOR */
	uint32		size;			/* of this structure, in bytes */

	/*
	 * Register a cache by its name, of at most 63 bytes; also from _PG_init()
	 * in the postmaster.  Registering it again replaces the callbacks.  The
	 * same name stands for the same cache in all processes, and in SQL
	 * (herald.cache_invalidate()).  Throws if there are more than 32 caches
	 * (all SQL caches count as one), or if the name is too long or empty.
	 */
	HeraldCache *(*cache_register) (const char *name, HeraldCacheInvalidate invalidate,
									HeraldCacheReset reset, void *arg);

	/* The hash of a key's bytes, which stands for the key. */
	uint32		(*cache_hash) (const void *key, size_t length);

	/*
	 * Process all invalidations up to now; it calls the callbacks.  To be
	 * called before each use of cached values, in a transaction, after taking
	 * the snapshot for that use.  Then no value is older than the data that
	 * the snapshot sees; it can be newer for the snapshot of a cursor or an
	 * imported one.  Costs two loads if there are no invalidations.  The
	 * first call in a process may throw, when out of memory.
	 */
	void		(*cache_accept) (void);

	/*
	 * May a value be kept that was computed with this snapshot?  Call this
	 * after computing it, and after cache_accept(); keep the value before any
	 * other code can call cache_accept(). snapshot: the oldest of those with
	 * which it was computed; NULL: the active one.  False if a transaction
	 * whose change the snapshot does not see has invalidated it; if this
	 * transaction has written anything, since the value might include changes
	 * that are rolled back; in a serializable transaction, since the server
	 * would not see what it reads from a cache; on a standby.  Never throws.
	 */
	bool		(*cache_may_keep) (HeraldCache *cache, uint32 key_hash, Snapshot snapshot);

	/*
	 * Invalidate a key when this transaction commits; in this process at
	 * once.  Rolled back with the transaction or subtransaction.  Assigns an
	 * id to the transaction.  In a transaction that may write; throws in
	 * recovery, in a parallel operation, and when out of memory.
	 */
	void		(*cache_invalidate) (HeraldCache *cache, uint32 key_hash);

	/* The same for all keys of the cache. */
	void		(*cache_invalidate_all) (HeraldCache *cache);
} HeraldCacheApi;

#define HERALD_CACHE_API_VARIABLE	"pg_herald_cache_api"

/* The interface; NULL: pg_herald_cache is not loaded, or is of another major version. */
static inline const HeraldCacheApi *
herald_cache_api_find(void)
{
	const HeraldCacheApi *api = *(const HeraldCacheApi **) find_rendezvous_variable(HERALD_CACHE_API_VARIABLE);

	return api && api->major == HERALD_CACHE_API_MAJOR ? api : NULL;
}

#endif							/* PG_HERALD_CACHE_API_H */
