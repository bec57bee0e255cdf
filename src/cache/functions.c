/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  Session caches for applications: the SQL functions to read and write them.
 *
 * Each reads the queue of invalidations first.  So a value that some change has
 * made stale is gone by the time that anybody with a snapshot that sees the
 * change could find it here.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/shared.h"
#include "cache/functions.h"
#include "cache/invalidation/invalidate.h"
#include "cache/invalidation/reader.h"
#include "cache/store.h"

PG_FUNCTION_INFO_V1(herald_cache_get);
PG_FUNCTION_INFO_V1(herald_cache_put);
PG_FUNCTION_INFO_V1(herald_cache_invalidate);
PG_FUNCTION_INFO_V1(herald_cache_clear);


bool
herald_cache_find(const HeraldStoreName *name, text **value)
{
	HeraldCacheUse *use = &herald_slots[herald_shared_my_slot()].cache;
	bool		found;

	herald_invalidation_accept();
	found = herald_store_get(name, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL, value);

	herald_count(found ? &use->hits : &use->misses, 1);
	return found;
}

bool
herald_cache_may_keep(const HeraldStoreName *name)
{
	return ActiveSnapshotSet() &&
		herald_invalidation_may_keep(name->cache_hash, name->key_hash, GetActiveSnapshot());
}

/*
 * herald.cache_get(cache text, key text) → text
 *
 * What is cached under the key; null if nothing is, or a null.
 */
Datum
herald_cache_get(PG_FUNCTION_ARGS)
{
	HeraldStoreName name = herald_store_name(PG_GETARG_TEXT_PP(0), PG_GETARG_TEXT_PP(1));
	text	   *value;

	if (!herald_store_is_usable())
		PG_RETURN_NULL();
	if (herald_cache_find(&name, &value))
	{
		if (value == NULL)
			PG_RETURN_NULL();
		PG_RETURN_TEXT_P(value);
	}

	/* What the caller computes now, and brings by cache_put(), may be kept. */
	if (herald_cache_may_keep(&name))
		herald_store_promise(&name);
	PG_RETURN_NULL();
}

/*
 * herald.cache_put(cache text, key text, value text) → boolean
 *
 * Keeps a value that was computed since cache_get() has found nothing.  False:
 * it may be stale by now, or does not fit, and was not kept.
 */
Datum
herald_cache_put(PG_FUNCTION_ARGS)
{
	HeraldStoreName name;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_BOOL(false);
	if (!herald_store_is_usable())
		PG_RETURN_BOOL(false);

	name = herald_store_name(PG_GETARG_TEXT_PP(0), PG_GETARG_TEXT_PP(1));
	herald_invalidation_accept();
	if (!herald_store_is_promised(&name) || !herald_cache_may_keep(&name))
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(herald_store_put(&name, PG_ARGISNULL(2) ? NULL : PG_GETARG_TEXT_PP(2)));
}

/*
 * herald.cache_invalidate(cache text, key text) → void
 *
 * What is cached under the key is invalid when this transaction commits; for
 * this session at once.
 */
Datum
herald_cache_invalidate(PG_FUNCTION_ARGS)
{
	HeraldStoreName name = herald_store_name(PG_GETARG_TEXT_PP(0), PG_GETARG_TEXT_PP(1));

	herald_invalidate(name.cache_hash, name.key_hash);
	PG_RETURN_VOID();
}

/*
 * herald.cache_clear([cache text]) → void
 *
 * The same for all keys of the cache, or of all caches of the database.
 */
Datum
herald_cache_clear(PG_FUNCTION_ARGS)
{
	text	   *cache;

	if (PG_NARGS() == 0)
	{
		herald_invalidate(HERALD_KEY_ALL, HERALD_KEY_ALL);
		PG_RETURN_VOID();
	}

	cache = PG_GETARG_TEXT_PP(0);
	herald_invalidate(herald_invalidate_hash(VARDATA_ANY(cache), VARSIZE_ANY_EXHDR(cache)),
					  HERALD_KEY_ALL);
	PG_RETURN_VOID();
}
