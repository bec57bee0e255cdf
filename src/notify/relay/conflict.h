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
 * Does replay on this standby wait for queries: for their end, for their locks, or for pages that they use?  Returns
 * false on a primary.
 */
extern bool herald_conflict_exists(void);

/*
 * Must a query that has waited since begin_ms (herald_clock_ms()) end its wait, because replay may be waiting for the
 * query?  Returns true at most once in a session while replay is stopped at the same record: replay usually waits only
 * for queries that began before it stopped, and the client's next query begins later.
 */
extern bool herald_conflict_ends_wait(uint64 begin_ms);

/*
 * Returns the number of milliseconds for which a waiting query can sleep before it must look for conflicts again.  On a
 * primary, where there are no conflicts, this is the time until end_ms; on a standby, it is a short pause
 * (herald_wait_pause()) that ends at end_ms at the latest.
 */
extern long herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms);

#endif							/* HERALD_CONFLICT_H */
