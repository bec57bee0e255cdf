/*-------------------------------------------------------------------------
 *
 * test_views.c
 *	  Functions with which tests inspect and damage shared memory.
 *
 * Only in a build for tests (make STOP_POINTS=1).  The functions are in no
 * extension script; a test creates them for itself (test/py/helpers/faults.py).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"

#include "base/compat.h"
#include "base/shared.h"
#include "notify/position/anchor.h"
#include "notify/position/last_logged.h"
#include "notify/settings/channel_settings.h"
#include "notify/storage/files.h"
#include "notify/storage/large_writer.h"

PG_FUNCTION_INFO_V1(herald_stop_state);
PG_FUNCTION_INFO_V1(herald_stop_turns);
PG_FUNCTION_INFO_V1(herald_stop_slot);
PG_FUNCTION_INFO_V1(herald_stop_damage);
PG_FUNCTION_INFO_V1(herald_stop_lose_large);
PG_FUNCTION_INFO_V1(herald_stop_logged);
PG_FUNCTION_INFO_V1(herald_stop_anchor);
PG_FUNCTION_INFO_V1(herald_stop_write_anchor);
PG_FUNCTION_INFO_V1(herald_stop_forget_anchors);
PG_FUNCTION_INFO_V1(herald_stop_is_logged);
PG_FUNCTION_INFO_V1(herald_stop_any_logged);


/* herald_stop_state() → text: resources in use that no view shows */
Datum
herald_stop_state(PG_FUNCTION_ARGS)
{
	char	   *state = psprintf("turns %u, to be woken %u, dispatching %u, waiting for dispatch %u, room awaited %u, large files %d, any to be deleted %d",
								 atomic_load(&herald_wakeup->turns_out), herald_wakeup_waiting(herald_wakeup),
								 atomic_load(&herald_queue->dispatching), atomic_load(&herald_control->dispatch_waiters),
								 atomic_load(&herald_control->room_is_awaited), herald_large_table_count(herald_large_table),
								 herald_files_any_doomed());

	PG_RETURN_TEXT_P(cstring_to_text(state));
}

/* herald_stop_turns() → integer: the current maximum number of turns */
Datum
herald_stop_turns(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) atomic_load(&herald_wakeup->turns_max));
}

/* herald_stop_is_logged(channel text) → boolean */
Datum
herald_stop_is_logged(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(herald_channel_is_logged(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

/* herald_stop_any_logged() → boolean: is any channel logged? */
Datum
herald_stop_any_logged(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(herald_channel_settings_any());
}

/*
 * herald_stop_lose_large(number bigint) → void: takes a file away from its transaction, as if
 * memory were damaged
 */
Datum
herald_stop_lose_large(PG_FUNCTION_ARGS)
{
	herald_large_writer_forget(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}

/*
 * herald_stop_slot(pid integer) → integer: the slot of a session that listens, or handles reasons
 * of other modules, as one that caches does; NULL: there is none
 */
Datum
herald_stop_slot(PG_FUNCTION_ARGS)
{
	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
	{
		if (atomic_load(&herald_slots[slot].pid) == PG_GETARG_INT32(0) ||
			atomic_load(&herald_slots[slot].attends) == PG_GETARG_INT32(0))
			PG_RETURN_INT32(slot);
	}
	PG_RETURN_NULL();
}

/*
 * herald_stop_damage(what text) → void: overwrites a part of the batch that will be dispatched
 * next: its "word", its "length", or its first "entry"
 */
Datum
herald_stop_damage(PG_FUNCTION_ARGS)
{
	char	   *what = text_to_cstring(PG_GETARG_TEXT_PP(0));
	HeraldPosition position = atomic_load(&herald_queue->dispatched);
	HeraldBatchHeader *header = (HeraldBatchHeader *) herald_queue_at(herald_queue, position);

	if (position == atomic_load(&herald_queue->head))
		elog(ERROR, "there is no batch to damage");
	if (strcmp(what, "word") == 0)
		header->word = PG_UINT64_MAX;
	else if (strcmp(what, "length") == 0)
		header->length = PG_UINT32_MAX;
	else if (strcmp(what, "entry") == 0)
		((HeraldEntry *) (header + 1))->length = PG_UINT32_MAX;
	else
		elog(ERROR, "a batch has no \"%s\"", what);
	PG_RETURN_VOID();
}

/*
 * herald_stop_logged() → text: the last batch with logged notifications: the end of its commit
 * record, and run and place in its message; NULL: there is none
 */
Datum
herald_stop_logged(PG_FUNCTION_ARGS)
{
	HeraldCommitId last = herald_last_logged();
	const char *end;

	if (last.end == InvalidXLogRecPtr)
		PG_RETURN_NULL();
	/* as this server writes it */
	end = DatumGetCString(DirectFunctionCall1(pg_lsn_out, LSNGetDatum(last.end)));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s %016llx %016llx", end,
											  (unsigned long long) last.run, (unsigned long long) last.place)));
}

/* herald_stop_anchor(place bigint) → pg_lsn: the latest anchor for this place; NULL: there is none */
Datum
herald_stop_anchor(PG_FUNCTION_ARGS)
{
	HeraldWalAnchor anchor;

	if (!herald_anchor_latest(PG_GETARG_INT64(0), &anchor))
		PG_RETURN_NULL();
	PG_RETURN_LSN(anchor.wal);
}

/* herald_stop_write_anchor() → void: writes one, as the housekeeper does */
Datum
herald_stop_write_anchor(PG_FUNCTION_ARGS)
{
	herald_anchor_write();
	PG_RETURN_VOID();
}

/* herald_stop_forget_anchors() → void: as on a server that has just started, and has logged nothing */
Datum
herald_stop_forget_anchors(PG_FUNCTION_ARGS)
{
	atomic_store(&herald_control->anchors.count, 0);
	atomic_store(&herald_control->logs, 0);
	PG_RETURN_VOID();
}
