/*-------------------------------------------------------------------------
 *
 * jitter.c
 *	  Each thread's random pauses.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <sched.h>
#include <unistd.h>

#include "jitter.h"

static _Thread_local uint64_t state = 1;


void
herald_jitter_seed(uint64_t seed)
{
	state = seed | 1;
}

uint64_t
herald_jitter_random(void)
{
	return herald_random(&state);
}

void
herald_jitter(uint32_t one_in)
{
	uint64_t	chance = herald_random(&state);

	if (chance % one_in == 0)
		herald_jitter_pause(chance / one_in);
}

void
herald_jitter_pause(uint64_t chance)
{
	if (chance % 16 == 0)
		usleep((useconds_t) (chance / 16 % 80));
	else
		sched_yield();
}
