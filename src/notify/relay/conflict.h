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

/* Does replay on this standby wait for queries to end, or to give up locks or pages?  False on a primary. */
extern bool herald_conflict_exists(void);

/*
 * Must a query that has waited since begin_ms (herald_clock_ms()) end its wait, because replay may be waiting for the query?
 * True at most once in a session while replay waits at one record, since replay does not wait for the repeated query.
 */
extern bool herald_conflict_ends_wait(uint64 begin_ms);

/*
 * How long the query sleeps between calls of herald_conflict_ends_wait(), in milliseconds: at most until end_ms; on a
 * primary, until end_ms.
 */
extern long herald_conflict_pause(uint64 begin_ms, uint64 now_ms, uint64 end_ms);

#endif							/* HERALD_CONFLICT_H */
