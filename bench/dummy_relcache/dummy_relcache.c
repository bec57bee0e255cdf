/*-------------------------------------------------------------------------
 *
 * dummy_relcache.c
 *	  A session cache that is invalidated as extensions do it without pg_herald.
 *
 * The server notifies every backend when a relation's description has changed.
 * So there is an empty, unused table, and a session that changes something that
 * other backends may have cached reports a change of this table.  This is the only
 * information that it can pass on, so each invalidation empties the whole cache in
 * every backend of the database.
 *
 * A value that was invalidated while it was computed is not kept.  Still, in this
 * way stale values remain possible, for two reasons:
 *
 * - A commit is visible a moment before its invalidations are sent.
 * - A transaction with a snapshot older than a commit may process that commit's
 *	 invalidation first, and afterwards compute and keep the old value.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(dummy_through);
PG_FUNCTION_INFO_V1(dummy_invalidate);

#define DUMMY_TABLE		"dummy_relcache"	/* in schema public */
#define ENTRIES			256					/* initial size of the hash table */

typedef struct Entry
{
	int32		key;
	text	   *value;
} Entry;

static Oid	dummy;				/* of the table */
static uint64 invalidations;
static uint64 cleared_at;		/* invalidations when the cache was emptied */
static MemoryContext memory;	/* of the cache */
static HTAB *cache;
static SPIPlanPtr plan;

void		_PG_init(void);

static void on_relcache(Datum arg, Oid relation);
static Oid	find_dummy(void);
static void clear(void);
static text *copy(MemoryContext to, const text *value);
static text *compute(text *query, Datum key);


void
_PG_init(void)
{
	CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
}

/* May be called at any moment, also while the cache is in use: it only counts. */
static void
on_relcache(Datum arg, Oid relation)
{
	if (relation == dummy || !OidIsValid(relation))
		invalidations++;
}

/*
 * dummy_through(key int, query text) → text: the cached value, or else the result
 * of the query with the key as $1.  The query must always be the same.
 */
Datum
dummy_through(PG_FUNCTION_ARGS)
{
	int32		key = PG_GETARG_INT32(0);
	Entry	   *entry;
	uint64		before;
	text	   *value;

	if (!OidIsValid(dummy))
		dummy = find_dummy();
	if (cache == NULL || cleared_at != invalidations)
		clear();
	entry = hash_search(cache, &key, HASH_FIND, NULL);
	if (entry)
		PG_RETURN_TEXT_P(copy(CurrentMemoryContext, entry->value));

	before = invalidations;
	value = compute(PG_GETARG_TEXT_PP(1), PG_GETARG_DATUM(0));
	if (before == invalidations)
	{
		text	   *kept = copy(memory, value);

		entry = hash_search(cache, &key, HASH_ENTER, NULL);
		entry->value = kept;
	}
	PG_RETURN_TEXT_P(value);
}

/* A trigger: AFTER ... FOR EACH ROW, or FOR EACH STATEMENT. */
Datum
dummy_invalidate(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "dummy_invalidate() is a trigger function");
	CacheInvalidateRelcacheByRelid(find_dummy());
	return PointerGetDatum(NULL);
}

static Oid
find_dummy(void)
{
	Oid			found = get_relname_relid(DUMMY_TABLE, get_namespace_oid("public", false));

	if (!OidIsValid(found))
		elog(ERROR, "there is no table %s", DUMMY_TABLE);
	return found;
}

static void
clear(void)
{
	HASHCTL		control = {.keysize = sizeof(int32),.entrysize = sizeof(Entry)};

	if (memory == NULL)
		memory = AllocSetContextCreate(TopMemoryContext, "dummy_relcache", ALLOCSET_DEFAULT_SIZES);
	cache = NULL;
	MemoryContextReset(memory);
	control.hcxt = memory;
	cleared_at = invalidations;
	cache = hash_create("dummy_relcache", ENTRIES, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static text *
copy(MemoryContext to, const text *value)
{
	return memcpy(MemoryContextAlloc(to, VARSIZE(value)), value, VARSIZE(value));
}

/* Returns the value in the caller's memory context. */
static text *
compute(text *query, Datum key)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			type = INT4OID;
	text	   *value;
	char	   *found;

	SPI_connect();
	if (plan == NULL)
	{
		plan = SPI_prepare(text_to_cstring(query), 1, &type);
		if (plan == NULL)
			elog(ERROR, "the query cannot be prepared");
		SPI_keepplan(plan);
	}
	if (SPI_execute_plan(plan, &key, NULL, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "the query must find one row");
	found = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (found == NULL)
		elog(ERROR, "the query must not find a null");
	caller = MemoryContextSwitchTo(caller);
	value = cstring_to_text(found);
	MemoryContextSwitchTo(caller);
	SPI_finish();
	return value;
}
