/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *	  The background worker in the stress of notifications: rescues turns,
 *	  dispatches leftovers, deletes files.
 *
 * Turns are rescued in some rounds only, and never while things come to rest:
 * the watchdog must not hide what the core loses.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>

#include "stress.h"

#define LOOK_EVERY_US	500
#define RESCUE_LOOKS	5		/* looks at a turn before it is taken back */

typedef struct Watched
{
	uint32_t	serial;
	int			looks;
} Watched;

static Watched watched[LISTENERS];

static void look_at_turns(void);


void
watchdog_act(void *arg)
{
	(void) arg;
	while (current_phase() < PHASE_VERIFY)
	{
		if (atomic_exchange(&world.leftovers, 0) != 0)
			(void) dispatch_and_pump(world.queue->segment_size);
		if (world.rescues && current_phase() == PHASE_ACTIVE)
			look_at_turns();
		spill_trim();
		usleep(LOOK_EVERY_US);
	}
}

/* While turns are taken back, turns_max is doubled each time. */
static void
look_at_turns(void)
{
	static uint32_t as_ever;
	uint32_t	turns_max = atomic_load(&world.wakeup->turns_max);
	bool		rescued = false;

	for (uint32_t i = 0; i < LISTENERS; i++)
	{
		uint32_t	slot = world.listeners[i].slot;
		uint32_t	serial = atomic_load(&herald_wakeup_turn(world.wakeup, slot)->serial);

		if (serial == 0 || serial != watched[i].serial)
			watched[i] = (Watched) {.serial = serial};
		else if (++watched[i].looks >= RESCUE_LOOKS &&
				 herald_wakeup_rescue(world.wakeup, slot, serial))
		{
			count(COUNT_RESCUES);
			rescued = true;
		}
	}
	if (rescued)
	{
		if (as_ever == 0)
			as_ever = turns_max;
		atomic_store(&world.wakeup->turns_max, 2 * turns_max);
		pump(HERALD_ALL_TURNS);
	}
	else if (as_ever != 0)
	{
		atomic_store(&world.wakeup->turns_max, as_ever);
		as_ever = 0;
	}
}
