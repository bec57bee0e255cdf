/*-------------------------------------------------------------------------
 *
 * caches.c
 *	  The function behind the view of sessions that use caches.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"

#include "base/shared.h"
#include "views/row.h"
#include "views/visible.h"

PG_FUNCTION_INFO_V1(herald_view_caches);


/* herald.get_caches() → setof record */
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
		Oid			role = atomic_load(&use->role);
		HeraldRow	row;

		if (herald_inval_state(word) == HERALD_INVAL_FREE ||
			!(all || herald_sees_role(role)))
			continue;

		row = herald_row_of(result->setDesc);
		herald_row_add(&row, "pid", INT4OID, Int32GetDatum(atomic_load(&backend->attends)));
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
