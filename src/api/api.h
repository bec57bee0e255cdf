/*-------------------------------------------------------------------------
 *
 * api.h
 *	  Publishes the interface for other modules.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_API_H
#define HERALD_API_H

/* Called once, in _PG_init(). */
extern void herald_api_publish(void);

#endif							/* HERALD_API_H */
