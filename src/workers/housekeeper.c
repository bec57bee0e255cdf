/*-------------------------------------------------------------------------
 *
 * housekeeper.c
 *	  The background worker that deletes files, and writes anchors into the WAL.
 *
 * No process relies on it: when there are too many files, or the disk is full, other processes
 * delete them (notify/storage/spill.c).  Only such a process waits while the housekeeper deletes
 * a file.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/position/anchor.h"
#include "notify/storage/spill.h"
#include "workers/housekeeper.h"
#include "workers/worker.h"

PGDLLEXPORT void herald_housekeeper_main(Datum arg);

static void apply_settings(void);
static void forget_housekeeper(int code, Datum arg);


void
herald_housekeeper_register(void)
{
	(void) herald_worker_register("pg_herald housekeeper", "herald_housekeeper_main");
}

void
herald_housekeeper_main(Datum arg)
{
	herald_worker_begin(HERALD_WORKER_HOUSEKEEPER);

	before_shmem_exit(forget_housekeeper, (Datum) 0);
	atomic_store(&herald_control->housekeeper_runs, true);
	apply_settings();

	while (!ShutdownRequestPending)
	{
		HERALD_STOP_POINT("housekeeper-look");
		herald_spill_doom_unneeded();
		while (!InterruptPending && !ShutdownRequestPending && herald_spill_delete_one())
			;
		herald_spill_tidy();
		herald_anchor_keep_up();
		(void) herald_worker_wait(HERALD_WAIT_HOUSEKEEPER, HERALD_IDLE_MS, apply_settings);
	}
	herald_worker_end();
}

static void
apply_settings(void)
{
	herald_spill_set_tablespaces(GetConfigOption("temp_tablespaces", false, false));
	herald_spill_apply_limit();
}

static void
forget_housekeeper(int code, Datum arg)
{
	atomic_store(&herald_control->housekeeper_runs, false);
}
