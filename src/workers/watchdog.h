/*-------------------------------------------------------------------------
 *
 * watchdog.h
 *	  The background worker that keeps the wakeups going.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WATCHDOG_H
#define HERALD_WATCHDOG_H

#include "postgres.h"

/* Have the postmaster run it.  Once, in _PG_init(). */
extern void herald_watchdog_register(void);

#endif							/* HERALD_WATCHDOG_H */
