/*-------------------------------------------------------------------------
 *
 * caches_view.c
 *	  The functions behind the views of caches.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/row.h"
#include "base/visible.h"
#include "inval/cache_shared.h"

PG_FUNCTION_INFO_V1(herald_view_caches);
PG_FUNCTION_INFO_V1(herald_view_cache_stats);
PG_FUNCTION_INFO_V1(herald_reset_cache_stats);

static void read_counters(uint64 *totals);


/* herald.get_caches() → setof record */
Datum
herald_view_caches(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		all = herald_sees_all();

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 slot = 0; slot < herald_inval_queue->slots; slot++)
	{
		HeraldCacheUse *use = &herald_cache_uses[slot];
		uint64		word = atomic_load(&herald_inval_queue->readers[slot].word);
		uint64		head = atomic_load(&herald_inval_queue->head);
		Oid			role = atomic_load(&use->role);
		HeraldRow	row;

		if (herald_inval_state(word) == HERALD_INVAL_FREE ||
			!(all || herald_sees_role(role)))
			continue;

		row = herald_row_of(result->setDesc);
		herald_row_add(&row, "pid", INT4OID, Int32GetDatum(atomic_load(&use->pid)));
		herald_row_add(&row, "datid", OIDOID, ObjectIdGetDatum(atomic_load(&use->database)));
		herald_row_add(&row, "role", OIDOID, ObjectIdGetDatum(role));
		herald_row_add(&row, "entries", INT4OID, Int32GetDatum(atomic_load(&use->values)));
		herald_row_add(&row, "memory", INT8OID, UInt64GetDatum(atomic_load(&use->bytes)));
		herald_row_add(&row, "hits", INT8OID, UInt64GetDatum(atomic_load(&use->hits)));
		herald_row_add(&row, "misses", INT8OID, UInt64GetDatum(atomic_load(&use->misses)));
		herald_row_add(&row, "invalidations", INT8OID,
					   UInt64GetDatum(atomic_load(&use->invalidations)));
		herald_row_add(&row, "resets", INT8OID, UInt64GetDatum(atomic_load(&use->resets)));

		/*
		 * A reader that was overrun does not read the messages that it was
		 * behind.
		 */
		herald_row_add_or_null(&row, "lag", INT8OID,
							   UInt64GetDatum(head - Min(head, herald_inval_position(word))),
							   herald_inval_state(word) == HERALD_INVAL_RESET);

		/* A session of another role may have taken the slot meanwhile. */
		if (!all && atomic_load(&use->role) != role)
			continue;
		herald_row_store(&row, result);
	}
	return (Datum) 0;
}

/* herald.get_cache_stats() → record: the counters, and the time of the last reset */
Datum
herald_view_cache_stats(PG_FUNCTION_ARGS)
{
	static const char *const names[] = {
		[HERALD_CACHE_INVALIDATIONS] = "invalidations",
		[HERALD_CACHE_RESETS] = "cache_resets",
		[HERALD_CACHE_CATCH_UPS] = "catch_ups",
		[HERALD_CACHE_TURNS_RESCUED] = "turns_rescued",
	};
	uint64		totals[HERALD_CACHE_COUNTERS];
	TimestampTz reset_time;
	HeraldRow	row = herald_row_only(fcinfo);

	StaticAssertStmt(lengthof(names) == HERALD_CACHE_COUNTERS, "each counter has a name");

	LWLockAcquire(herald_cache_control->reset_lock, LW_SHARED);
	read_counters(totals);
	for (int i = 0; i < HERALD_CACHE_COUNTERS; i++)
		totals[i] -= herald_cache_control->reset_counters[i];
	reset_time = herald_cache_control->reset_time;
	LWLockRelease(herald_cache_control->reset_lock);

	/*
	 * Making a Datum can allocate memory, and so may fail: do not do this
	 * under the lock.
	 */
	for (int i = 0; i < HERALD_CACHE_COUNTERS; i++)
		herald_row_add(&row, names[i], INT8OID, UInt64GetDatum(totals[i]));
	herald_row_add(&row, "stats_reset", TIMESTAMPTZOID, TimestampTzGetDatum(reset_time));
	return herald_row_datum(&row);
}

/* herald.reset_cache_stats() → void: stores the current values, instead of setting them to zero */
Datum
herald_reset_cache_stats(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(herald_cache_control->reset_lock, LW_EXCLUSIVE);
	read_counters(herald_cache_control->reset_counters);
	herald_cache_control->reset_time = now;
	LWLockRelease(herald_cache_control->reset_lock);
	PG_RETURN_VOID();
}

static void
read_counters(uint64 *totals)
{
	totals[HERALD_CACHE_INVALIDATIONS] = atomic_load(&herald_inval_queue->head);
	totals[HERALD_CACHE_RESETS] = atomic_load(&herald_cache_control->resets);
	totals[HERALD_CACHE_CATCH_UPS] = atomic_load(&herald_inval_queue->signals);
	totals[HERALD_CACHE_TURNS_RESCUED] = atomic_load(&herald_inval_queue->rescues);
}
