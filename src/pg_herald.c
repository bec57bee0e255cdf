/*-------------------------------------------------------------------------
 *
 * pg_herald.c
 *	  The module: its parts, put together.
 *
 * The way of a notification is the way through the folders:
 *
 *		sender/ → core/ (the queue) → dispatch/ → listener/
 *
 * That of an invalidation: cache/ or api/ → invalidation/ → core/ (inval_queue)
 * → invalidation/ → cache/ or api/.
 *
 * docs/internals/ARCHITECTURE.md tells it in full.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "api/api.h"
#include "base/outbox.h"
#include "base/settings.h"
#include "cache/store.h"
#include "hooks.h"
#include "memory.h"
#include "notify/listener/frames.h"
#include "transaction.h"
#include "watchdog/watchdog.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_herald must be loaded via shared_preload_libraries"),
				 errdetail("It needs shared memory, which is laid out when the server starts."),
				 errhint("Add pg_herald to shared_preload_libraries in postgresql.conf, before modules that track statements, and restart the server.")));

	herald_settings_define(herald_store_trim);
	herald_memory_install_hooks();
	herald_transaction_register_callbacks();
	herald_hooks_install();
	herald_frames_init();
	herald_outbox_init();
	herald_watchdog_register();
	herald_api_publish();
}
