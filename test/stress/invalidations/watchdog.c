/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *	  The background worker in the stress of the queue of invalidations.
 *
 * Takes back turns that have been out for long, in some rounds only, and never
 * while things come to rest: it must not hide what the core loses.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>

#include "stress.h"

/* The turn that was seen last, and the number of looks at it. */
static uint64_t watched;
static uint32_t looks;

static void rescue(uint64_t turn);


void
watchdog_act(void *arg)
{
	(void) arg;
	while (current_phase() < PHASE_VERIFY)
	{
		uint64_t	turn = herald_inval_turn(world.queue);

		if (holder_of(turn) == HERALD_INVAL_NOBODY || turn != watched)
		{
			watched = turn;
			looks = 0;
		}
		else if (world.rescues && ++looks >= world.rescue_looks)
		{
			atomic_store(&world.rescuing, 1);
			if (atomic_load(&run.phase) == PHASE_ACTIVE)
				rescue(turn);
			atomic_store(&world.rescuing, 0);
		}
		usleep(world.look_pause_us);
	}
}

static void
rescue(uint64_t turn)
{
	uint32_t	slot = (uint32_t) holder_of(turn);
	uint32_t	moves = atomic_load(&world.moves[slot]);
	int32_t		next = herald_inval_rescue(world.queue, turn);

	if (herald_inval_turn(world.queue) == turn)
		fail("slot %u has its turn still", slot);

	/* The same reader may get the next turn only if it has moved meanwhile. */
	if (next == (int32_t) slot && moves % 2 == 0 && atomic_load(&world.moves[slot]) == moves)
		fail("slot %u was stuck, and gets the next turn as well", slot);
	count(next != HERALD_INVAL_NOBODY ? COUNT_RESCUES : COUNT_RESCUES_FOR_NOBODY);
	send_signal(next);
}
