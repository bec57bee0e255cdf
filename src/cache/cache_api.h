/*-------------------------------------------------------------------------
 *
 * cache_api.h
 *	  Publishes the interface for other modules that cache.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CACHE_API_H
#define HERALD_CACHE_API_H

/* Called once, in _PG_init(). */
extern void herald_cache_api_publish(void);

#endif							/* HERALD_CACHE_API_H */
