/*-------------------------------------------------------------------------
 *
 * relay_worker.h
 *	  The background worker that puts logged notifications into a standby's queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RELAY_WORKER_H
#define HERALD_RELAY_WORKER_H

#include "postgres.h"

/* Have the postmaster run the relay.  Called once, in _PG_init(). */
extern void herald_relay_register(void);

#endif							/* HERALD_RELAY_WORKER_H */
