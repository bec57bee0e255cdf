/*-------------------------------------------------------------------------
 *
 * cache_involvement.h
 *	  Does this backend's transaction concern caches?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CACHE_INVOLVEMENT_H
#define HERALD_CACHE_INVOLVEMENT_H

#include "postgres.h"

/*
 * Most transactions invalidate nothing, and must cost nothing: at their ends only this flag is
 * checked.  Set by every function that leaves work for the end of the transaction;
 * cache/pg_herald_cache.c clears it.
 */
extern bool herald_cache_is_involved;

/*
 * Has our callback before the commit, or before PREPARE TRANSACTION, run?  What other modules'
 * callbacks, pg_herald's among them, invalidate after it goes into the queue directly.
 */
extern bool herald_cache_is_committing;

#endif							/* HERALD_CACHE_INVOLVEMENT_H */
