/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  Intervals of time, by a monotonic clock.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLOCK_H
#define HERALD_CLOCK_H

#include "postgres.h"

#include <time.h>

/*
 * Milliseconds since some moment in the past, the same for all processes.  instr_time does not
 * do: in PostgreSQL 19 each session can choose its clock (timing_clock_source).
 */
static inline uint64
herald_clock_ms(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000 + (uint64) now.tv_nsec / 1000000;
}

#endif							/* HERALD_CLOCK_H */
