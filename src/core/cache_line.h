/*-------------------------------------------------------------------------
 *
 * cache_line.h
 *	  The size of a cache line.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CACHE_LINE_H
#define HERALD_CACHE_LINE_H

#define HERALD_CACHE_LINE		64

#endif							/* HERALD_CACHE_LINE_H */
