/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The shared memory of pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/shared.h"

HeraldQueue *herald_queue;
HeraldWakeup *herald_wakeup;
HeraldSlot *herald_slots;
HeraldControl *herald_control;
HeraldInvalQueue *herald_inval_queue;
HeraldFiles *herald_files;
HeraldSpill *herald_spill;
HeraldRoom *herald_room;
HeraldLargeFiles *herald_large_files;
HeraldReasonNames *herald_reason_names;
void	   *herald_channel_area;


uint32
herald_shared_my_slot(void)
{
	/* A process that has no backend number (15, 16: the watchdog) has the last slot. */
	return Min(herald_my_slot(), herald_control->slots - 1);
}

void
herald_shared_count(HeraldCounter counter, uint64 n)
{
	herald_count(&herald_slots[herald_shared_my_slot()].counters[counter], n);
}
