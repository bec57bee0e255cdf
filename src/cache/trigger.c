/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  Triggers that invalidate the keys of a cache when a table changes:
 *	  herald.invalidate_cache(), and herald.cache_watch(), which creates them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "cache/key.h"
#include "core/inval_queue.h"
#include "core/stop_point.h"
#include "inval/invalidate.h"

PG_FUNCTION_INFO_V1(herald_invalidate_cache);
PG_FUNCTION_INFO_V1(herald_cache_watch);

static void invalidate_row(uint32 cache, const Trigger *trigger, TupleDesc columns, HeapTuple row);
static void check_is_stored(TupleDesc columns, int number);
static void check_columns(Oid table_oid, const Datum *columns, int count);
static void create_trigger(Oid table, const char *cache, const Datum *columns, int count, bool is_truncate);
static char *trigger_name(const char *cache, const Datum *columns, int count);


/*
 * herald.invalidate_cache('cache' [, 'column', ...]) → trigger
 *
 * AFTER INSERT OR UPDATE OR DELETE ... FOR EACH ROW: invalidates the keys of the old and of
 * the new row, made from the columns as by herald.cache_key().  Without columns, or FOR EACH
 * STATEMENT, as needed for TRUNCATE: invalidates the whole cache.
 */
Datum
herald_invalidate_cache(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	const Trigger *trigger;
	uint32		cache;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", "invalidate_cache")));
	if (!TRIGGER_FIRED_AFTER(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER the event", "invalidate_cache")));
	trigger = data->tg_trigger;

	/*
	 * Negative: there were more than 32,767 arguments, which not every
	 * version's CREATE TRIGGER refuses.
	 */
	if (trigger->tgnargs <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" does not name a cache", trigger->tgname),
				 errhint("Use EXECUTE FUNCTION herald.invalidate_cache('cache', 'column', ...).")));

	if (trigger->tgdeferrable)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must not be deferrable", trigger->tgname),
				 errdetail("Until a deferred trigger fires, its transaction could find outdated values in the cache.")));

	cache = herald_invalidate_hash(trigger->tgargs[0], strlen(trigger->tgargs[0]));
	if (trigger->tgnargs == 1 || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		herald_invalidate(cache, HERALD_KEY_ALL);
	else
	{
		TupleDesc	columns = RelationGetDescr(data->tg_relation);

		invalidate_row(cache, trigger, columns, data->tg_trigtuple);
		if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
			invalidate_row(cache, trigger, columns, data->tg_newtuple);
	}
	return PointerGetDatum(NULL);
}

static void
invalidate_row(uint32 cache, const Trigger *trigger, TupleDesc columns, HeapTuple row)
{
	int			count = trigger->tgnargs - 1;
	Datum	   *values = palloc(count * sizeof(Datum));
	bool	   *nulls = palloc(count * sizeof(bool));
	Oid		   *types = palloc(count * sizeof(Oid));
	text	   *key;

	for (int i = 0; i < count; i++)
	{
		const char *column = trigger->tgargs[i + 1];
		int			number = SPI_fnumber(columns, column);

		if (number == SPI_ERROR_NOATTRIBUTE)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" named by trigger \"%s\" does not exist",
							column, trigger->tgname)));
		check_is_stored(columns, number);
		values[i] = SPI_getbinval(row, columns, number, &nulls[i]);
		types[i] = SPI_gettypeid(columns, number);
	}

	/* Nothing is cached under a key that is null. */
	key = herald_key_make(count, values, nulls, types);
	if (key)
		herald_invalidate(cache, herald_invalidate_hash_text(key));
}

static void
check_is_stored(TupleDesc columns, int number)
{
	if (number > 0 && herald_is_virtual(TupleDescAttr(columns, number - 1)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" is not stored", NameStr(TupleDescAttr(columns, number - 1)->attname)),
				 errdetail("A virtual generated column has no value when triggers fire."),
				 errhint("Make it stored, or name the columns that it is computed from.")));
}

/*
 * herald.cache_watch(cache text, watched regclass, VARIADIC columns name[]) → void
 *
 * Creates or replaces the triggers with which all changes of the table invalidate the cache.
 * It also clears the cache: earlier changes may not have fired a trigger.
 */
Datum
herald_cache_watch(PG_FUNCTION_ARGS)
{
	Oid			watched = PG_GETARG_OID(1);
	char	   *cache;
	Datum	   *columns;
	int			count;
	List	   *tables;
	ListCell   *each;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) ||
		array_contains_nulls(PG_GETARG_ARRAYTYPE_P(2)))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("cache, table and columns must not be null")));
	cache = text_to_cstring(PG_GETARG_TEXT_PP(0));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &columns, NULL, &count);

	if (get_rel_name(watched) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", watched)));
	/* Before the table is locked, since the lock blocks writers. */
	if (!object_ownercheck(RelationRelationId, watched, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(watched)), get_rel_name(watched));
	HERALD_MAY_WAIT();
	LockRelationOid(watched, ShareRowExclusiveLock);
	tables = find_all_inheritors(watched, ShareRowExclusiveLock, NULL);

	SPI_connect();
	foreach(each, tables)
	{
		Oid			table = lfirst_oid(each);

		check_columns(table, columns, count);
		/* A partition has copies of the triggers for rows. */
		if (table == watched || !get_rel_relispartition(table))
			create_trigger(table, cache, columns, count, false);
		create_trigger(table, cache, columns, count, true);
	}
	SPI_finish();

	herald_invalidate(herald_invalidate_hash(cache, strlen(cache)), HERALD_KEY_ALL);
	PG_RETURN_VOID();
}

/* Throw now the errors that the trigger would throw when it fires. */
static void
check_columns(Oid table_oid, const Datum *columns, int count)
{
	Relation	table = relation_open(table_oid, NoLock);
	char		kind = table->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot watch changes of relation \"%s\"", RelationGetRelationName(table)),
				 errdetail_relkind_not_supported(kind)));
	for (int i = 0; i < count; i++)
	{
		const char *column = NameStr(*DatumGetName(columns[i]));
		int			number = SPI_fnumber(RelationGetDescr(table), column);

		if (number <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							column, RelationGetRelationName(table))));
		check_is_stored(RelationGetDescr(table), number);
		herald_key_check_type(SPI_gettypeid(RelationGetDescr(table), number));
	}
	relation_close(table, NoLock);
}

/*
 * A trigger for TRUNCATE must be FOR EACH STATEMENT: so there is one trigger for rows and one
 * for TRUNCATE.  ALWAYS: replicated changes fire them too.
 */
static void
create_trigger(Oid table, const char *cache, const Datum *columns, int count, bool is_truncate)
{
	const char *relation = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)),
													  get_rel_name(table));
	const char *trigger = quote_identifier(trigger_name(cache, columns, is_truncate ? -1 : count));
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE OR REPLACE TRIGGER %s AFTER %s ON %s FOR EACH %s"
					 " EXECUTE FUNCTION herald.invalidate_cache(%s",
					 trigger, is_truncate ? "TRUNCATE" : "INSERT OR UPDATE OR DELETE", relation,
					 is_truncate ? "STATEMENT" : "ROW", quote_literal_cstr(cache));
	for (int i = 0; i < count && !is_truncate; i++)
		appendStringInfo(&sql, ", %s", quote_literal_cstr(NameStr(*DatumGetName(columns[i]))));
	appendStringInfoChar(&sql, ')');
	(void) SPI_execute(sql.data, false, 0);

	resetStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", relation, trigger);
	(void) SPI_execute(sql.data, false, 0);
}

/*
 * "herald cache(column,column)", or "herald cache truncate" if count is -1: a distinct name
 * for each cache and its columns.  A name that is too long is cut off, and ends with a hash.
 */
static char *
trigger_name(const char *cache, const Datum *columns, int count)
{
	StringInfoData name;

	initStringInfo(&name);
	appendStringInfo(&name, "herald %s%s", quote_identifier(cache), count < 0 ? " truncate" : "(");
	for (int i = 0; i < count; i++)
		appendStringInfo(&name, "%s%s", i > 0 ? "," : "", quote_identifier(NameStr(*DatumGetName(columns[i]))));
	if (count >= 0)
		appendStringInfoChar(&name, ')');

	if (name.len >= NAMEDATALEN)
	{
		char	   *hash = psprintf(" %08x", hash_bytes((unsigned char *) name.data, name.len));

		name.len = pg_mbcliplen(name.data, name.len, NAMEDATALEN - 1 - (int) strlen(hash));
		appendStringInfoString(&name, hash);
	}
	return name.data;
}
