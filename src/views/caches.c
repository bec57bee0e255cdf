/*-------------------------------------------------------------------------
 *
 * caches.c
 *	  The view of who caches what.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/shared.h"
#include "views/visible.h"

PG_FUNCTION_INFO_V1(herald_view_caches);

#define CACHES_COLUMNS	10


/*
 * herald.get_caches() → setof record: pid, datid, role, entries, memory, hits,
 * misses, invalidations, resets, lag
 */
Datum
herald_view_caches(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		all = herald_sees_all();

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 slot = 0; slot < herald_inval_queue->slots; slot++)
	{
		HeraldSlot *backend = &herald_slots[slot];
		HeraldCacheUse *use = &backend->cache;
		uint64		word = atomic_load(&herald_inval_queue->readers[slot].word);
		uint64		head = atomic_load(&herald_inval_queue->head);
		Datum		values[CACHES_COLUMNS] = {0};
		bool		nulls[CACHES_COLUMNS] = {0};

		if (herald_inval_state(word) == HERALD_INVAL_FREE ||
			!(all || herald_sees_role(atomic_load(&use->role))))
			continue;

		values[0] = Int32GetDatum(atomic_load(&backend->attends));
		values[1] = ObjectIdGetDatum(atomic_load(&use->database));
		values[2] = ObjectIdGetDatum(atomic_load(&use->role));
		values[3] = Int32GetDatum(atomic_load(&use->values));
		values[4] = Int64GetDatum(atomic_load(&use->bytes));
		values[5] = Int64GetDatum(atomic_load(&use->hits));
		values[6] = Int64GetDatum(atomic_load(&use->misses));
		values[7] = Int64GetDatum(atomic_load(&use->invalidations));
		values[8] = Int64GetDatum(atomic_load(&use->resets));

		/* Whoever was overrun reads nothing of what it was behind. */
		nulls[9] = herald_inval_state(word) == HERALD_INVAL_RESET;
		values[9] = Int64GetDatum(head - Min(head, herald_inval_position(word)));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
