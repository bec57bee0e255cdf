/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What the background workers have in common.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "workers/worker.h"

static bool is_refused(const char *name);


bool
herald_worker_register(const char *name, const char *function)
{
	return herald_worker_register_as(name, function, BgWorkerStart_PostmasterStart, BGWORKER_SHMEM_ACCESS);
}

bool
herald_worker_register_as(const char *name, const char *function, BgWorkerStartTime start_time, int flags)
{
	BackgroundWorker worker = {
		.bgw_flags = flags,
		.bgw_start_time = start_time,
		.bgw_restart_time = 1,
	};

	strlcpy(worker.bgw_name, name, BGW_MAXLEN);
	strlcpy(worker.bgw_type, name, BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "pg_herald", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
	if (!is_refused(name))
		return true;
	ereport(WARNING,
			(errmsg("background worker \"%s\" cannot run", name),
			 errdetail("max_worker_processes (%d) leaves no slot for it.", max_worker_processes),
			 errhint("Increase max_worker_processes, and restart the server.")));
	return false;
}

/*
 * RegisterBackgroundWorker() returns nothing, and logs only that there are too many, not which one does not run.
 * Without a postmaster, in single-user mode, no worker runs.
 */
static bool
is_refused(const char *name)
{
	RegisteredBgWorker *last;

	if (!IsPostmasterEnvironment || IsUnderPostmaster)
		return false;
	last = herald_last_registered_worker();
	return last == NULL || strcmp(last->rw_worker.bgw_name, name) != 0;
}

void
herald_worker_begin(HeraldWorker worker)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	herald_shared_set_worker(worker);
}

bool
herald_worker_wait(HeraldWait wait, long timeout_ms, void (*apply_settings) (void))
{
	bool		is_set;

	HERALD_MAY_WAIT();
	is_set = (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						timeout_ms, herald_wait(wait)) & WL_LATCH_SET) != 0;
	if (is_set)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		apply_settings();
	}
	return is_set;
}

void
herald_worker_end(void)
{
	/* Not 0, which would mean that it is not to be started again. */
	proc_exit(1);
}
