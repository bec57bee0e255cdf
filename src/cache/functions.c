/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  SQL functions that invalidate cached values explicitly.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"

#include "base/compat.h"
#include "cache/key.h"
#include "inval/invalidate.h"

PG_FUNCTION_INFO_V1(herald_cache_invalidate);
PG_FUNCTION_INFO_V1(herald_cache_clear);


/*
 * herald.cache_invalidate(cache text, VARIADIC arguments "any") → void
 *
 * Invalidates the values cached for these arguments when this transaction commits; in this
 * session at once.
 */
Datum
herald_cache_invalidate(PG_FUNCTION_ARGS)
{
	Datum	   *values;
	bool	   *nulls;
	Oid		   *types;
	int			count = extract_variadic_args(fcinfo, 1, true, &values, &types, &nulls);
	text	   *key = count >= 0 ? herald_key_make(count, values, nulls, types) : NULL;

	/* Nothing is cached for a single null. */
	if (!PG_ARGISNULL(0) && key)
		herald_invalidate(herald_invalidate_hash_text(PG_GETARG_TEXT_PP(0)),
						  herald_invalidate_hash_text(key));
	PG_RETURN_VOID();
}

/*
 * herald.cache_clear([cache text]) → void
 *
 * The same for all values of the cache, or of all caches of the database.
 */
Datum
herald_cache_clear(PG_FUNCTION_ARGS)
{
	herald_invalidate(PG_NARGS() == 0 ? HERALD_KEY_ALL : herald_invalidate_hash_text(PG_GETARG_TEXT_PP(0)),
					  HERALD_KEY_ALL);
	PG_RETURN_VOID();
}
