/*-------------------------------------------------------------------------
 *
 * cache_involvement.c
 *	  Does this backend's transaction concern caches?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "inval/cache_involvement.h"

bool		herald_cache_is_involved;
bool		herald_cache_is_committing;
