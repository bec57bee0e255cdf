/*-------------------------------------------------------------------------
 *
 * points_link.h
 *	  How pg_herald_cache reaches the stop points, which are pg_herald's.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_POINTS_LINK_H
#define HERALD_POINTS_LINK_H

#include "core/stop_point.h"

/* At a rendezvous variable of the server. */
#define HERALD_STOP_POINTS_LINK	"pg_herald_stop_points"

typedef struct HeraldStopPointsLink
{
	void		(*stop_point) (const char *name, HeraldStopPointKind kind);
	void		(*check_wait) (const char *file, const char *function);
	void		(*add_lock) (void *lock, const char *name);
} HeraldStopPointsLink;

#endif							/* HERALD_POINTS_LINK_H */
