/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  herald.invalidate_cache(): a table's changes invalidate a cache's keys.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "cache/invalidation/invalidate.h"
#include "cache/key.h"
#include "core/inval_queue.h"

PG_FUNCTION_INFO_V1(herald_invalidate_cache);

static void invalidate_row(uint32 cache, const Trigger *trigger, TupleDesc columns, HeapTuple row);


/*
 * herald.invalidate_cache('cache' [, 'column', ...]) → trigger
 *
 * AFTER INSERT OR UPDATE OR DELETE ... FOR EACH ROW: invalidates the key that the
 * columns make, as herald.cache_key() does, of the old and of the new row.
 * Without columns, and FOR EACH STATEMENT, as needed for TRUNCATE: the whole cache.
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
	if (trigger->tgnargs == 0)
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
		if (number > 0 && herald_is_virtual(TupleDescAttr(columns, number - 1)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column \"%s\" named by trigger \"%s\" is not stored",
							column, trigger->tgname),
					 errdetail("A virtual generated column has no value when triggers fire."),
					 errhint("Use a stored generated column, or name the columns that it is computed from.")));
		values[i] = SPI_getbinval(row, columns, number, &nulls[i]);
		types[i] = SPI_gettypeid(columns, number);
	}

	/* Nothing is cached under a key that is null. */
	key = herald_key_make(count, values, nulls, types);
	if (key)
		herald_invalidate(cache, herald_invalidate_hash(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)));
}
