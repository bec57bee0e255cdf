/*-------------------------------------------------------------------------
 *
 * gap.c
 *	  A place in the queue at which notifications are missing.
 *
 * The relay of a standby may be unable to read notifications in the WAL.  In their place it puts
 * a reference to a file that never exists into the queue, for all listeners of a database.  A
 * listener that reaches it has missed notifications, like one whose file was deleted.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/entry.h"
#include "base/shared.h"
#include "core/large_table.h"
#include "core/queue.h"
#include "core/stop_point.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/sender/admission.h"
#include "notify/sender/gap.h"

/* As in a reference to a large transaction's file: an entry for its listeners, one for the file. */
#define ENTRIES_BYTES	(2 * sizeof(HeraldEntry) + sizeof(HeraldFileReference))


void
herald_gap_publish(Oid database)
{
	uint64		entries[ENTRIES_BYTES / sizeof(uint64)];
	uint64		length;
	HeraldBatch info = {.count = 2,.database = database};
	HeraldPosition position;

	length = herald_entry_write_all_listeners((HeraldEntry *) entries);
	length += herald_entry_write_file((HeraldEntry *) ((char *) entries + length), HERALD_GAP_FILE, sizeof(HeraldEntry));
	herald_dispatch_attach();
	if (!herald_admission_reserve(&info, length, 0, &position))
		return;					/* the queue is damaged: all listeners are
								 * notified of that */

	HOLD_INTERRUPTS();
	herald_queue_fill(herald_queue, position, entries, length);
	herald_queue_commit(herald_queue, position, GetCurrentTimestamp(), 0);
	if (!herald_dispatch_run())
		herald_damage_tell();
	RESUME_INTERRUPTS();
}
