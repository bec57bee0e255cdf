/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  A table of settings, and each session's cache of what it has read there.
 *
 * The cache is the module's own; pg_herald_cache says what to discard, and what may
 * be kept.  Entries are found by the hash of the key, as in invalidations: of
 * two keys with the same hash, the one that was read last is kept.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "herald_client.h"

PG_FUNCTION_INFO_V1(client_get);
PG_FUNCTION_INFO_V1(client_invalidate);
PG_FUNCTION_INFO_V1(client_invalidate_all);
PG_FUNCTION_INFO_V1(client_setting_changed);
PG_FUNCTION_INFO_V1(client_cached);
PG_FUNCTION_INFO_V1(client_register_cache);

#define COLUMNS		5			/* of cached() */

typedef struct Entry
{
	uint32		hash;
	char	   *key;
	char	   *value;			/* NULL if the setting does not exist */
} Entry;

static HeraldCache *cache;		/* pg_herald_cache's handle */
static MemoryContext context;	/* of the entries; NULL if there are none */
static HTAB *entries;

static int64 hits;
static int64 kept;
static int64 not_kept;
static int64 resets;

static void forget(uint32 key_hash, void *arg);
static void forget_all(void *arg);
static char *read_setting(const char *key);
static void keep(uint32 hash, const char *key, const char *value);
static void await_lock(int64 lock);
static void invalidate_key_of(HeapTuple tuple, TupleDesc columns);
static Datum text_or_null(FunctionCallInfo fcinfo, const char *value);


void
client_settings_attach(const HeraldCacheApi *caches)
{
	cache = caches->cache_register("herald_client", forget, forget_all, NULL);
}

void
client_settings_invalidate(const char *key)
{
	const HeraldCacheApi *caches = client_caches();

	if (caches == NULL)
		return;					/* then nothing is cached, either */
	if (key)
		caches->cache_invalidate(cache, caches->cache_hash(key, strlen(key)));
	else
		caches->cache_invalidate_all(cache);
}

/* get(key text, await bigint) → text */
Datum
client_get(PG_FUNCTION_ARGS)
{
	const HeraldCacheApi *caches = client_caches();
	char	   *key;
	char	   *value;
	uint32		hash;
	Entry	   *entry;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	key = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (caches == NULL)
		return text_or_null(fcinfo, read_setting(key));

	caches->cache_accept();
	hash = caches->cache_hash(key, strlen(key));
	entry = entries ? hash_search(entries, &hash, HASH_FIND, NULL) : NULL;
	if (entry && strcmp(entry->key, key) == 0)
	{
		hits++;
		return text_or_null(fcinfo, entry->value);
	}

	value = read_setting(key);
	if (!PG_ARGISNULL(1))
		await_lock(PG_GETARG_INT64(1));
	caches->cache_accept();
	if (caches->cache_may_keep(cache, hash, GetActiveSnapshot()))
		keep(hash, key, value);
	else
		not_kept++;
	return text_or_null(fcinfo, value);
}

/* invalidate(key text) → void */
Datum
client_invalidate(PG_FUNCTION_ARGS)
{
	client_settings_invalidate(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* invalidate_all() → void */
Datum
client_invalidate_all(PG_FUNCTION_ARGS)
{
	client_settings_invalidate(NULL);
	PG_RETURN_VOID();
}

/* setting_changed() → trigger */
Datum
client_setting_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	columns;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");

	columns = RelationGetDescr(data->tg_relation);
	if (TRIGGER_FIRED_FOR_STATEMENT(data->tg_event))
		client_settings_invalidate(NULL);
	else
	{
		invalidate_key_of(data->tg_trigtuple, columns);
		if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
			invalidate_key_of(data->tg_newtuple, columns);
	}
	return PointerGetDatum(NULL);
}

/* cached() → number of entries in this session's cache, and its counters */
Datum
client_cached(PG_FUNCTION_ARGS)
{
	TupleDesc	columns;
	bool		nulls[COLUMNS] = {false};
	Datum		values[COLUMNS] = {
		Int32GetDatum(entries ? (int32) hash_get_num_entries(entries) : 0),
		Int64GetDatum(hits), Int64GetDatum(kept), Int64GetDatum(not_kept), Int64GetDatum(resets),
	};

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "cached() must return a row");
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls)));
}

/* register_cache(name text) → void: another cache, in which nothing is kept */
Datum
client_register_cache(PG_FUNCTION_ARGS)
{
	const HeraldCacheApi *caches = client_caches();

	if (caches)
		(void) caches->cache_register(text_to_cstring(PG_GETARG_TEXT_PP(0)), forget, forget_all, NULL);
	PG_RETURN_VOID();
}

static void
forget(uint32 key_hash, void *arg)
{
	Entry	   *entry = entries ? hash_search(entries, &key_hash, HASH_FIND, NULL) : NULL;

	if (entry == NULL)
		return;
	pfree(entry->key);
	if (entry->value)
		pfree(entry->value);
	(void) hash_search(entries, &key_hash, HASH_REMOVE, NULL);
}

/* Must not throw: deletes everything; keep() creates it again when needed. */
static void
forget_all(void *arg)
{
	resets++;
	if (context)
		MemoryContextDelete(context);
	context = NULL;
	entries = NULL;
}

/* Reads with the caller's snapshot: SPI uses it if read_only is true. */
static char *
read_setting(const char *key)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			type = TEXTOID;
	Datum		argument = CStringGetTextDatum(key);
	char	   *value = NULL;

	SPI_connect();
	SPI_execute_with_args("SELECT value FROM client.setting WHERE key = $1",
						  1, &type, &argument, NULL, true, 1);
	if (SPI_processed > 0)
		value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (value)
		value = MemoryContextStrdup(caller, value);
	SPI_finish();
	return value;
}

static void
keep(uint32 hash, const char *key, const char *value)
{
	Entry	   *entry;
	char	   *key_copy;
	char	   *value_copy;

	if (context == NULL)
	{
		MemoryContext made = AllocSetContextCreate(TopMemoryContext, "herald_client settings",
												   ALLOCSET_DEFAULT_SIZES);
		HASHCTL		control = {.keysize = sizeof(uint32), .entrysize = sizeof(Entry), .hcxt = made};

		entries = hash_create("herald_client settings", 64, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		context = made;
	}

	/* First everything that can throw, so that there is never half an entry. */
	key_copy = MemoryContextStrdup(context, key);
	value_copy = value ? MemoryContextStrdup(context, value) : NULL;
	forget(hash, NULL);
	entry = hash_search(entries, &hash, HASH_ENTER, NULL);
	entry->key = key_copy;
	entry->value = value_copy;
	kept++;
}

/* Waits while another session holds this lock. */
static void
await_lock(int64 lock)
{
	(void) DirectFunctionCall1(pg_advisory_xact_lock_shared_int8, Int64GetDatum(lock));
}

static void
invalidate_key_of(HeapTuple tuple, TupleDesc columns)
{
	client_settings_invalidate(SPI_getvalue(tuple, columns, 1));
}

static Datum
text_or_null(FunctionCallInfo fcinfo, const char *value)
{
	if (value == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(value));
}
