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

/*
 * A value is the result of a query: this names all that it depends on, besides
 * the data.  The cache and the key, which the arguments make, are what an
 * invalidation names.
 */
typedef struct HeraldStoreName
{
	const text *cache;
	const text *key;
	const text *query;
	int			count;			/* of the arguments */
	const Oid  *types;			/* of the arguments */
	const char *path;			/* search_path, by which the query's names are looked up */
	Oid			role;			/* whose rights the query has */
	uint32		cache_hash;
	uint32		key_hash;
} HeraldStoreName;

/* For the current role and search_path. */
extern HeraldStoreName herald_store_name(const text *cache, const text *key, const text *query,
										 int count, const Oid *types);

/* Caching is possible at all: not on a standby, and not in a serializable transaction. */
extern bool herald_store_is_usable(void);

/*
 * What is kept under this name, for a query with this snapshot (NULL: any), as a
 * copy in the current memory context (NULL for an SQL null).  False: nothing.
 * The queue has been read before.
 */
extern bool herald_store_get(const HeraldStoreName *name, Snapshot snapshot, text **value);

/*
 * Keep a value, NULL for an SQL null.  The caller has made sure that it may be
 * kept.  False: it is larger than all of herald.cache_memory, and is not kept.
 * Throws when out of memory.
 */
extern bool herald_store_put(const HeraldStoreName *name, const text *value);

/*
 * Keep a value that may not be kept, as long as it is asked for with a snapshot
 * that sees what the one sees with which it was computed.  As above; false as
 * well if the transaction has written something.
 */
extern bool herald_store_put_passing(const HeraldStoreName *name, Snapshot snapshot,
									 const text *value);

/* Forget, as HeraldForget does. */
extern void herald_store_forget(uint32 cache, uint32 key, void *arg);

/* The transaction has committed: its own changes are facts.  Never fails. */
extern void herald_store_commit(void);

/* A transaction or subtransaction was rolled back.  Never fails. */
extern void herald_store_abort(void);

/* A setting's hook: herald.cache_memory has become smaller, perhaps. */
extern void herald_store_trim(int limit_kb, void *extra);

#endif							/* HERALD_STORE_H */
