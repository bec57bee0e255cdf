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
HeraldFiles *herald_files;
HeraldSpill *herald_spill;
HeraldLargeTable *herald_large_table;
HeraldReasonNames *herald_reason_names;
HeraldRelay *herald_relay;
void	   *herald_channel_area;

/* The number of this worker, from 1; 0: this process is none. */
static uint32 worker;

void
herald_shared_set_worker(uint32 number)
{
	worker = number;
}

uint32
herald_shared_my_slot(void)
{
	/*
	 * 15, 16: a process that is not connected to a database has no backend
	 * number.
	 */
	return worker > 0 ? herald_control->slots - worker : Min(herald_my_slot(), herald_control->slots - 1);
}

uint64
herald_shared_my_word(void)
{
	return atomic_load(herald_wakeup_word(herald_wakeup, herald_shared_my_slot()));
}

void
herald_shared_count(HeraldCounter counter, uint64 n)
{
	herald_count(&herald_slots[herald_shared_my_slot()].counters[counter], n);
}
