/*-------------------------------------------------------------------------
 *
 * pg_herald_api.h
 *	  What pg_herald offers to other modules, in C.
 *
 * The only header of pg_herald that is installed.  A module that uses it needs
 * nothing of pg_herald to be built or loaded: it asks at run time whether
 * pg_herald is there.
 *
 *		const HeraldApi *herald = herald_api_find();
 *
 *		if (herald)
 *			herald->notify("jobs", "new");
 *
 * herald_api_find() may be called from _PG_init() on, by any module that is loaded
 * after pg_herald, and always once the server runs.
 *
 * All functions are to be called in a backend (not in the postmaster, unless it
 * says otherwise), from the main thread, outside of signal handlers.  "Throws"
 * means ereport(ERROR).  docs/c-api.md has examples.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_HERALD_API_H
#define PG_HERALD_API_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/snapshot.h"

/*
 * A new major version is another interface.  Within one, functions are only
 * added, at the end: ask HERALD_API_HAS() before using one that came later.
 */
#define HERALD_API_MAJOR	1

#define HERALD_API_HAS(api, function) \
	((api)->size >= offsetof(HeraldApi, function) + sizeof((api)->function))

/* A cache that a module has registered.  Lives as long as the process. */
typedef struct HeraldCache HeraldCache;

/* A reason to signal that a module has registered.  Lives as long as the process. */
typedef struct HeraldReason HeraldReason;

/*
 * Forget what is cached under this key's hash, in this process.  Called when
 * invalidations are read: from cache_accept(), at the beginning of a statement,
 * before a commit, while a backend is idle; and at once for what this process
 * itself invalidates.  Must not throw, read catalogs, or call this interface.
 */
typedef void (*HeraldCacheInvalidate) (uint32 key_hash, void *arg);

/*
 * Forget all of the cache, in this process.  Called when it was invalidated as a
 * whole, and when invalidations were missed.  The same restrictions.
 */
typedef void (*HeraldCacheReset) (void *arg);

/*
 * Somebody has sent this reason to this process: once or several times since
 * the handler ran last.  Runs at a safe point: at the beginning of a statement,
 * before a commit, or in an empty transaction if the process was idle.  A
 * transaction is open and has not failed, but it may be the client's, and about
 * to commit; there may be no snapshot.  May notify and invalidate.  Must not
 * throw, nor send a reason to its own process.
 */
typedef void (*HeraldReasonHandler) (void *arg);

typedef struct HeraldApi
{
	uint32		major;			/* HERALD_API_MAJOR */
	uint32		size;			/* of this structure, in bytes */

	/*
	 * Register a cache by its name, of at most 63 bytes; also from _PG_init() in the
	 * postmaster.  Registered again it has the new callbacks.  The same name in all
	 * processes, and in SQL (herald.cache_invalidate()), is the same cache.  Throws
	 * if there are more than 32 (all of SQL's count as one), or the name is too long or empty.
	 */
	HeraldCache *(*cache_register) (const char *name, HeraldCacheInvalidate invalidate,
									HeraldCacheReset reset, void *arg);

	/* The hash that a key goes by: of its bytes. */
	uint32		(*cache_hash) (const void *key, size_t length);

	/*
	 * Hear of all invalidations up to now; the callbacks run in it.  To be called
	 * each time before cached values are used, in a transaction, after the
	 * snapshot that they are used with was taken.  Then none is older than what
	 * that snapshot sees; it can be newer, for a cursor's or an imported one.
	 * Cheap if there are none: two loads.  The first call in a process may throw,
	 * when out of memory.
	 */
	void		(*cache_accept) (void);

	/*
	 * May a value be kept that was computed with this snapshot?  Ask after having
	 * computed it, and after cache_accept(); keep it before anything else can call
	 * that.  snapshot: the oldest of those it was computed with; NULL: the active
	 * one.  False if some transaction has invalidated it whose change the
	 * snapshot does not see; if this transaction has written anything, so that
	 * the value might have to be rolled back; in a serializable transaction, which
	 * would not notice what it depends on; on a standby.  Never throws.
	 */
	bool		(*cache_may_keep) (HeraldCache *cache, uint32 key_hash, Snapshot snapshot);

	/*
	 * Invalidate a key when this transaction commits; in this process at once.
	 * Rolled back with the transaction, or with its subtransaction.  Gives the
	 * transaction an id.  In a transaction that may write; throws in recovery, in
	 * a parallel operation, when out of memory.
	 */
	void		(*cache_invalidate) (HeraldCache *cache, uint32 key_hash);

	/* The same for all of its keys. */
	void		(*cache_invalidate_all) (HeraldCache *cache);

	/*
	 * What the NOTIFY statement does: payload may be NULL for an empty one.
	 * In a transaction, up to the callbacks before its commit; throws what NOTIFY
	 * throws.
	 */
	void		(*notify) (const char *channel, const char *payload);

	/*
	 * Register a reason by its name, of at most 63 bytes, with what is to be done
	 * about it in this process; also from _PG_init() in the postmaster.  Registered
	 * again it has the new handler.  There can be 30 in a server, until it restarts.
	 * Throws if there are more, or the name is too long or empty.
	 */
	HeraldReason *(*reason_register) (const char *name, HeraldReasonHandler handler, void *arg);

	/*
	 * Have the handler run in the process with this id; several sendings before
	 * it does are one.  False: no process with this id has registered the
	 * reason (in the postmaster: has ended its start since).  Needs no
	 * transaction.  Never throws.
	 */
	bool		(*reason_send) (HeraldReason *reason, int pid);
} HeraldApi;

#define HERALD_API_VARIABLE	"pg_herald_api"

/* The interface; NULL: pg_herald is not loaded, or is of another major version. */
static inline const HeraldApi *
herald_api_find(void)
{
	const HeraldApi *api = *(const HeraldApi **) find_rendezvous_variable(HERALD_API_VARIABLE);

	return api && api->major == HERALD_API_MAJOR ? api : NULL;
}

#endif							/* PG_HERALD_API_H */
