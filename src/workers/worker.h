/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What the background workers have in common.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WORKER_H
#define HERALD_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "base/compat.h"
#include "base/shared.h"
#include "base/waits.h"

/* How often a worker looks for work that it is not woken for, when nothing is going on. */
#define HERALD_IDLE_MS	1000

/* Each worker's number, which determines its slot. */
typedef enum HeraldWorker
{
	HERALD_WORKER_WATCHDOG = 1,
	HERALD_WORKER_HOUSEKEEPER = 2,
	HERALD_WORKER_RELAY = 3
} HeraldWorker;

StaticAssertDecl(HERALD_WORKER_RELAY == HERALD_WORKERS, "a slot for each worker");

/*
 * Have the postmaster run this function of ours as a worker with this name, and start it again
 * when it ends.  Once, in _PG_init().  False: max_worker_processes leaves no slot for it; that is logged.
 */
extern bool herald_worker_register(const char *name, const char *function);

/* The same for a worker that starts later, or needs more than shared memory. */
extern bool herald_worker_register_as(const char *name, const char *function,
									  BgWorkerStartTime start_time, int flags);

/* At the beginning of the worker's function. */
extern void herald_worker_begin(HeraldWorker worker);

/*
 * Wait until the worker's latch is set, but for timeout_ms at most; then serve interrupts, and
 * call apply_settings() if the configuration was reloaded.  True: the latch was set.
 */
extern bool herald_worker_wait(HeraldWait wait, long timeout_ms, void (*apply_settings) (void));

/* The worker is to end (ShutdownRequestPending). */
herald_noreturn extern void herald_worker_end(void);

#endif							/* HERALD_WORKER_H */
