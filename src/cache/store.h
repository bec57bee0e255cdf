/*-------------------------------------------------------------------------
 *
 * store.h
 *	  The values that this session caches.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_STORE_H
#define HERALD_STORE_H

#include "postgres.h"

#include "utils/snapshot.h"

/* herald_cache.memory: of each backend; 0: nothing is cached. */
extern int	herald_cache_memory_kb;

/*
 * A value is the result of a query: its name has everything that it depends on besides the
 * data.  An invalidation names the cache and the key, which is made from the arguments.
 */
typedef struct HeraldStoreName
{
	const text *cache;
	const text *key;
	const text *query;
	int			count;			/* of the arguments */
	const Oid  *types;			/* of the arguments */
	const char *path;			/* search_path, with which the query's names
								 * are looked up */
	Oid			role;			/* the query runs with its privileges */
	uint32		cache_hash;
	uint32		key_hash;
} HeraldStoreName;

/* Make a name, with the current role and search_path. */
extern HeraldStoreName herald_store_name(const text *cache, const text *key, const text *query,
										 int count, const Oid *types);

/*
 * Is caching possible?  Not if it is turned off, on a standby, or in a serializable
 * transaction.
 */
extern bool herald_store_is_usable(void);

/*
 * Get the value kept under this name, as a copy in the current memory context (NULL for an SQL
 * null), for a query with this snapshot (NULL: only values that are valid for all snapshots).
 * False: there is none.  The caller must have read the queue of invalidations before.
 */
extern bool herald_store_get(const HeraldStoreName *name, Snapshot snapshot, text **value);

/*
 * Keep a value, NULL for an SQL null.  The caller must have checked that it may be kept.
 * False: it is larger than herald_cache.memory, and is not kept.  Throws when out of memory.
 */
extern bool herald_store_put(const HeraldStoreName *name, const text *value);

/*
 * Keep a value that may not be kept in general, for snapshots that see the same as the one
 * with which it was computed.  As above; also false if the transaction has written something.
 */
extern bool herald_store_put_passing(const HeraldStoreName *name, Snapshot snapshot,
									 const text *value);

/* A transaction or subtransaction was rolled back.  Never fails. */
extern void herald_store_abort(void);

/* The assign hook of herald_cache.memory, which may have become smaller. */
extern void herald_store_trim(int limit_kb, void *extra);

#endif							/* HERALD_STORE_H */
