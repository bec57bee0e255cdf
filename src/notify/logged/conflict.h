/*-------------------------------------------------------------------------
 *
 * conflict.h
 *	  A query that waits on a standby, while replay waits for the query.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CONFLICT_H
#define HERALD_CONFLICT_H

#include "postgres.h"

/*
 * Does replay on this standby wait until queries have ended, or have given up locks?  A query that waits for something that is
 * to be replayed ends then: it may be one of these.  False on a primary.
 */
extern bool herald_conflict_exists(void);

/*
 * How long a query sleeps before it asks that again, in milliseconds: one that waits since begin_ms, until end_ms
 * (herald_clock_ms()).  At most that on a primary.
 */
extern long herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms);

#endif							/* HERALD_CONFLICT_H */
