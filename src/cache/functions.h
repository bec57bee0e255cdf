/*-------------------------------------------------------------------------
 *
 * functions.h
 *	  What the SQL functions for session caches share.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CACHE_FUNCTIONS_H
#define HERALD_CACHE_FUNCTIONS_H

#include "postgres.h"

#include "cache/store.h"

/*
 * Read the queue of invalidations, then look.  As herald_store_get(), and
 * counts.  Where caching is possible.
 */
extern bool herald_cache_find(const HeraldStoreName *name, text **value);

/* May a value be kept that is computed with the active snapshot? */
extern bool herald_cache_may_keep(const HeraldStoreName *name);

#endif							/* HERALD_CACHE_FUNCTIONS_H */
