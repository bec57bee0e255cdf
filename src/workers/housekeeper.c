/*-------------------------------------------------------------------------
 *
 * housekeeper.c
 *	  The background worker that deletes files and logs laggards.
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
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/resowner.h"

#include "base/shared.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/position/kept.h"
#include "notify/storage/spill.h"
#include "workers/housekeeper.h"
#include "workers/laggards.h"

#define LOOK_EVERY_MS		1000

PGDLLEXPORT void herald_housekeeper_main(Datum arg);

static void apply_settings(void);
static void forget_housekeeper(int code, Datum arg);


void
herald_housekeeper_register(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_PostmasterStart,
		.bgw_restart_time = 1,
	};

	strlcpy(worker.bgw_name, "pg_herald housekeeper", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_herald housekeeper", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "pg_herald", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "herald_housekeeper_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

void
herald_housekeeper_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	herald_shared_set_worker(2);

	/* For the files that it reads. */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "pg_herald housekeeper");
	before_shmem_exit(forget_housekeeper, (Datum) 0);
	atomic_store(&herald_control->housekeeper_runs, true);
	apply_settings();

	while (!ShutdownRequestPending)
	{
		HERALD_STOP_POINT("housekeeper-look");
		herald_spill_doom_unneeded();
		herald_kept_expire();
		while (!InterruptPending && !ShutdownRequestPending && herald_spill_delete_one())
			;
		herald_spill_tidy();
		herald_laggards_look();

		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  LOOK_EVERY_MS, herald_wait(HERALD_WAIT_HOUSEKEEPER)) & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			apply_settings();
		}
	}

	/* Not 0, which would mean that it is not to be started again. */
	proc_exit(1);
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
