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

/* Is there one? */
extern bool herald_watchdog_runs(void);

/* Its process id; 0: there is none. */
extern int	herald_watchdog_pid(void);

/* There is work left to dispatch.  False: there is no watchdog.  Never fails. */
extern bool herald_watchdog_wake(void);

/*
 * A turn has been given out, or somebody waits for listeners: make sure that the
 * watchdog is awake and looks.  Never fails; cheap when it is.
 */
extern void herald_watchdog_alert(void);

#endif							/* HERALD_WATCHDOG_H */
