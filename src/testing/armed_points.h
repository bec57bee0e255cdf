/*-------------------------------------------------------------------------
 *
 * armed_points.h
 *	  The shared memory of the stop points (core/stop_point.h).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ARMED_POINTS_H
#define HERALD_ARMED_POINTS_H

#include "postgres.h"

#include "core/stop_point.h"

typedef struct HeraldStopPoints HeraldStopPoints;
extern HeraldStopPoints *herald_stop_points;

/* Shared memory, for memory.c. */
extern Size herald_stop_points_shared_size(void);
extern void herald_stop_points_shared_init(void);

#ifdef HERALD_STOP_POINTS
#define HERALD_STOP_POINTS_STRUCTURE \
	{"pg_herald stop points", (void **) &herald_stop_points, \
	 herald_stop_points_shared_size, herald_stop_points_shared_init},
#else
#define HERALD_STOP_POINTS_STRUCTURE
#endif

#endif							/* HERALD_ARMED_POINTS_H */
