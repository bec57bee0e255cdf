/*-------------------------------------------------------------------------
 *
 * wake_watchdog.h
 *	  Wakes the watchdog.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAKE_WATCHDOG_H
#define HERALD_WAKE_WATCHDOG_H

#include "postgres.h"

/* Is there a watchdog? */
extern bool herald_watchdog_runs(void);

/* The watchdog's process id; 0: there is no watchdog. */
extern int	herald_watchdog_pid(void);

/* There is work left to dispatch.  False: there is no watchdog.  Never fails. */
extern bool herald_wake_watchdog(void);

/*
 * A turn has been handed out, or a process waits for listeners: make sure that the watchdog is
 * awake and checks.  Never fails; cheap when the watchdog is awake.
 */
extern void herald_wake_watchdog_if_asleep(void);

#endif							/* HERALD_WAKE_WATCHDOG_H */
