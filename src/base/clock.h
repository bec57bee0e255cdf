/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  Intervals of time, by a clock that nobody sets.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLOCK_H
#define HERALD_CLOCK_H

#include "postgres.h"

#include "portability/instr_time.h"

/* Milliseconds since some moment in the past, the same for all processes. */
static inline uint64
herald_clock_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (uint64) INSTR_TIME_GET_MILLISEC(now);
}

#endif							/* HERALD_CLOCK_H */
