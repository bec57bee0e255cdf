/*-------------------------------------------------------------------------
 *
 * cache_points.c
 *	  The stop points of pg_herald_cache, and a function with which tests inspect it.
 *
 * Only in a build for tests (make STOP_POINTS=1).  The points are armed and reached in pg_herald
 * (armed_points.c); this passes the calls on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "core/stop_point.h"
#include "inval/cache_shared.h"
#include "testing/points_link.h"

PG_FUNCTION_INFO_V1(herald_stop_caches);

static const HeraldStopPointsLink *link_to(void);


void
herald_stop_point(const char *name, HeraldStopPointKind kind)
{
	link_to()->stop_point(name, kind);
}

void
herald_stop_check_wait(const char *file, const char *function)
{
	link_to()->check_wait(file, function);
}

void
herald_stop_add_lock(void *lock, const char *name)
{
	link_to()->add_lock(lock, name);
}

/* herald_stop_caches() → text: resources in use that no view shows */
Datum
herald_stop_caches(PG_FUNCTION_ARGS)
{
	int			reading = 0;
	int			committing = 0;

	for (uint32 slot = 0; slot < herald_inval_queue->slots; slot++)
	{
		HeraldInvalReader *reader = &herald_inval_queue->readers[slot];

		if (herald_inval_state(atomic_load(&reader->word)) != HERALD_INVAL_FREE)
			reading++;
		if (atomic_load(&reader->committing) != 0)
			committing++;
	}
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("reading %d, committing %d, turn of slot %d", reading, committing,
											  (int) (uint32) herald_inval_turn(herald_inval_queue) - 1)));
}

/* pg_herald was built for tests as well. */
static const HeraldStopPointsLink *
link_to(void)
{
	static const HeraldStopPointsLink *known;

	if (known == NULL)
		known = *(const HeraldStopPointsLink **) find_rendezvous_variable(HERALD_STOP_POINTS_LINK);
	return known;
}
