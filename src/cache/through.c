/*-------------------------------------------------------------------------
 *
 * through.c
 *	  herald.cache_through(): returns a cached value, or computes it by a query.
 *
 * The query runs with the snapshot of the calling statement, so that its result is the one
 * that the statement would find itself, and with the privileges of the current role, for which
 * the result is cached.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/count.h"
#include "cache/key.h"
#include "cache/store.h"
#include "inval/cache_shared.h"
#include "inval/inval_reader.h"

PG_FUNCTION_INFO_V1(herald_cache_through);

/*
 * Maximum number of queries whose plans a session keeps; when it is exceeded, unused plans are
 * dropped.
 */
#define PLANS_MAX		64

typedef struct KeptPlan
{
	char	   *query;
	int			count;			/* of arguments */
	Oid		   *types;
	SPIPlanPtr	plan;
	int			uses;			/* current executions: a query may itself use
								 * the cache */
} KeptPlan;

static KeptPlan *plans[PLANS_MAX];
static int	plans_count;

static bool find(const HeraldStoreName *name, text **value);
static void keep(const HeraldStoreName *name, const text *value);
static text *compute(const char *query, int count, Datum *values, bool *nulls, Oid *types);
static int	execute(const char *query, int count, Datum *values, const char *nulls, Oid *types);
static int	execute_kept(KeptPlan *kept, Datum *values, const char *nulls);
static KeptPlan *find_plan(const char *query, int count, const Oid *types);
static KeptPlan *keep_plan(SPIPlanPtr plan, const char *query, int count, const Oid *types);
static bool make_room(void);


/*
 * herald.cache_through(cache text, query text, VARIADIC arguments "any") → text
 *
 * Returns the result of the query with these arguments ($1, $2, ...), as text: the cached one;
 * or else the query is run, and its result is cached if that is allowed.  The query must
 * return one column and at most one row; no row counts as null.  It may only read.  If the
 * only argument is null, the query is run and nothing is cached.
 */
Datum
herald_cache_through(PG_FUNCTION_ARGS)
{
	HeraldStoreName name;
	text	   *key;
	text	   *value;
	Datum	   *values = NULL;
	bool	   *nulls = NULL;
	Oid		   *types = NULL;
	int			count = 0;
	bool		caches;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("cache and query must not be null")));

	if (PG_NARGS() > 2)
		count = Max(extract_variadic_args(fcinfo, 2, true, &values, &types, &nulls), 0);
	key = herald_key_make(count, values, nulls, types);
	caches = key != NULL && herald_store_is_usable();
	if (caches)
	{
		name = herald_store_name(PG_GETARG_TEXT_PP(0), key, PG_GETARG_TEXT_PP(1), count, types);
		if (find(&name, &value))
		{
			if (value == NULL)
				PG_RETURN_NULL();
			PG_RETURN_TEXT_P(value);
		}
	}

	/* The query may set search_path, and that frees the old text. */
	if (caches)
		name.path = pstrdup(name.path);
	value = compute(text_to_cstring(PG_GETARG_TEXT_PP(1)), count, values, nulls, types);
	if (caches)
		keep(&name, value);
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(value);
}

/*
 * The queue of invalidations is read first.  So a value that a change has made stale is
 * dropped before a statement with a snapshot that sees the change could find it here.
 */
static bool
find(const HeraldStoreName *name, text **value)
{
	HeraldCacheUse *use = herald_cache_my_use();
	bool		found;

	herald_inval_reader_accept();
	found = herald_store_get(name, ActiveSnapshotSet() ? GetActiveSnapshot() : NULL, value);

	herald_count(found ? &use->hits : &use->misses, 1);
	return found;
}

/* If the value has been invalidated meanwhile, it is kept for our snapshot only. */
static void
keep(const HeraldStoreName *name, const text *value)
{
	herald_inval_reader_accept();
	if (!ActiveSnapshotSet())
		return;
	if (herald_inval_reader_may_keep(name->cache_hash, name->key_hash, GetActiveSnapshot()))
		(void) herald_store_put(name, value);
	else
		(void) herald_store_put_passing(name, GetActiveSnapshot(), value);
}

/* In the caller's memory context; NULL for an SQL null. */
static text *
compute(const char *query, int count, Datum *values, bool *nulls, Oid *types)
{
	MemoryContext caller = CurrentMemoryContext;
	char	   *null_signs = palloc(count + 1);
	text	   *value = NULL;
	int			result;
	char	   *found;

	for (int i = 0; i < count; i++)
		null_signs[i] = nulls[i] ? 'n' : ' ';

	SPI_connect();
	result = execute(query, count, values, null_signs, types);
	if (result != SPI_OK_SELECT || SPI_tuptable->tupdesc->natts != 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the query of herald.cache_through() must return one column"),
				 errdetail_internal("%s", query)));
	if (SPI_processed > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("more than one row returned by the query of herald.cache_through()")));
	if (SPI_processed == 1)
	{
		found = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		if (found)
		{
			MemoryContext spi = MemoryContextSwitchTo(caller);

			value = cstring_to_text(found);
			MemoryContextSwitchTo(spi);
		}
	}
	SPI_finish();
	return value;
}

static int
execute(const char *query, int count, Datum *values, const char *nulls, Oid *types)
{
	KeptPlan   *kept = find_plan(query, count, types);

	if (kept == NULL)
	{
		SPIPlanPtr	plan = SPI_prepare(query, count, types);

		if (plan == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_SYNTAX_ERROR),
					 errmsg("the query of herald.cache_through() cannot be prepared: %s",
							SPI_result_code_string(SPI_result))));
		if (!make_room())
			return SPI_execute_plan(plan, values, nulls, true, 2);
		kept = keep_plan(plan, query, count, types);
	}
	return execute_kept(kept, values, nulls);
}

static int
execute_kept(KeptPlan *kept, Datum *values, const char *nulls)
{
	int			result;

	kept->uses++;
	PG_TRY();
	{
		result = SPI_execute_plan(kept->plan, values, nulls, true, 2);
	}
	PG_FINALLY();
	{
		kept->uses--;
	}
	PG_END_TRY();
	return result;
}

static KeptPlan *
find_plan(const char *query, int count, const Oid *types)
{
	for (int i = 0; i < plans_count; i++)
	{
		KeptPlan   *kept = plans[i];

		if (kept->count == count && strcmp(kept->query, query) == 0 &&
			(count == 0 || memcmp(kept->types, types, count * sizeof(Oid)) == 0))
			return kept;
	}
	return NULL;
}

static KeptPlan *
keep_plan(SPIPlanPtr plan, const char *query, int count, const Oid *types)
{
	KeptPlan   *kept = MemoryContextAllocZero(TopMemoryContext,
											  sizeof(KeptPlan) + count * sizeof(Oid) +
											  strlen(query) + 1);

	kept->types = (Oid *) (kept + 1);
	kept->query = (char *) (kept->types + count);
	kept->count = count;
	if (count > 0)
		memcpy(kept->types, types, count * sizeof(Oid));
	memcpy(kept->query, query, strlen(query) + 1);
	(void) SPI_keepplan(plan);
	kept->plan = plan;
	plans[plans_count++] = kept;
	return kept;
}

/* False: all plans are being executed. */
static bool
make_room(void)
{
	int			left = 0;

	if (plans_count < PLANS_MAX)
		return true;
	for (int i = 0; i < plans_count; i++)
	{
		if (plans[i]->uses > 0)
			plans[left++] = plans[i];
		else
		{
			(void) SPI_freeplan(plans[i]->plan);
			pfree(plans[i]);
		}
	}
	plans_count = left;
	return plans_count < PLANS_MAX;
}
