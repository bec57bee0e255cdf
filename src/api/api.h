/*-------------------------------------------------------------------------
 *
 * api.h
 *	  The interface for other modules: how they find it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_API_H
#define HERALD_API_H

/* Once, in _PG_init(). */
extern void herald_api_publish(void);

#endif							/* HERALD_API_H */
