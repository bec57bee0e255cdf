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

/* Does replay on this standby wait until queries have ended, or have given up locks or pages?  False on a primary. */
extern bool herald_conflict_exists(void);

/*
 * Must a query end its wait, since replay perhaps waits for it?  It waits since begin_ms (herald_clock_ms()).  True once in a
 * session for each time that replay waits: when the query is repeated, it is not for this one.
 */
extern bool herald_conflict_ends_wait(uint64 begin_ms);

/* How long the query sleeps before it asks that, in milliseconds: until end_ms at most; on a primary, until then. */
extern long herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms);

#endif							/* HERALD_CONFLICT_H */
