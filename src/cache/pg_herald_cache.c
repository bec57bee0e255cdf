/*-------------------------------------------------------------------------
 *
 * pg_herald_cache.c
 *	  The entry point of the library for caches, and its actions at the end of a transaction.
 *
 * The library uses pg_herald through its C interface alone (api/pg_herald_api.h): to signal
 * sessions that are far behind with invalidations (inval/catch_up.c).  So it is preloaded after
 * pg_herald.  What else both need is linked into each.
 *
 * An invalidation comes from a trigger or a function of SQL (trigger.c, functions.c) or from
 * another module (cache_api.c).  It stays in the transaction's own memory until its end
 * (inval/invalidate.c), is put into a queue before the commit (core/inval_queue.c), and is read by
 * each backend that uses a cache (inval/inval_reader.c), which drops the values (store.c).  Which
 * computed values may be kept, core/freshness.c decides.
 *
 * Order of the callbacks.  The server calls those that were registered last first.  So before a
 * commit ours comes before pg_herald's, which may wait: for room in its queue, or for other
 * sessions that change settings.  The announcement and the messages then precede the end of the
 * transaction by more, which is correct at any distance [I7]: a joining backend finds the
 * transaction among those that are not over, and no other assumption is made about when it ends.
 * Until then readers do not keep new values of these keys, and compute them.  What pg_herald's
 * callback, or another one after ours, invalidates, as a handler of a signal may, goes into the
 * queue directly.
 *
 * At the end, too, ours comes first.  Other sessions then wait for pg_herald's, so ours is short:
 * `committing` is cleared, since the end is visible.  What may be large waits until the server frees
 * the transaction's memory, after all callbacks: the list of invalidations, and the values that the
 * transaction has kept, which become valid then.  (After a rollback they are dropped at once: there is
 * no batch.)
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "api/pg_herald_api.h"
#include "base/compat.h"
#include "base/slow_ends.h"
#include "cache/cache_api.h"
#include "cache/store.h"
#include "inval/cache_involvement.h"
#include "inval/cache_shared.h"
#include "inval/catch_up.h"
#include "inval/invalidate.h"

HERALD_MODULE("pg_herald_cache");

PGDLLEXPORT void _PG_init(void);

static void at_transaction_event(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
									SubTransactionId parent_id, void *arg);
static void before_commit(void);
static void at_end(bool committed);


void
_PG_init(void)
{
	const HeraldApi *herald = herald_api_find();

	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_herald_cache must be loaded via shared_preload_libraries"),
				 errdetail("It needs shared memory, which the server allocates at start."),
				 errhint("Add pg_herald_cache to shared_preload_libraries in postgresql.conf, after pg_herald, and restart the server.")));
	if (herald == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_herald_cache must be loaded after pg_herald"),
				 errdetail("pg_herald is not loaded, or has another version of its C interface."),
				 errhint("Put pg_herald before pg_herald_cache in shared_preload_libraries in postgresql.conf.")));

	DefineCustomIntVariable("herald_cache.memory",
							"Sets the memory of each session for values kept by herald.cache_through().",
							"The least recently used values are removed first. 0 turns these caches off.",
							&herald_cache_memory_kb, 4 * 1024,
							0, MAX_KILOBYTES,
							PGC_USERSET, GUC_UNIT_KB, NULL, herald_store_trim, NULL);
	MarkGUCPrefixReserved("herald_cache");

	herald_cache_shared_install_hooks();
	herald_catch_up_init(herald);
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	herald_cache_api_publish();
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	herald_cache_is_committing = event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE;
	if (likely(!herald_cache_is_involved))
		return;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			before_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:

			/*
			 * Now, because no callback of this session runs when the
			 * transaction commits: that may be in another session, perhaps
			 * after a restart.
			 */
			herald_invalidate_publish();
			break;
		case XACT_EVENT_COMMIT:
			at_end(true);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:	/* its changes may still be rolled back */
			at_end(false);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* the leader does this */
	}
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
						SubTransactionId parent_id, void *arg)
{
	if (!herald_cache_is_involved)
		return;

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			herald_invalidate_subcommit();
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			herald_invalidate_subabort();
			herald_store_abort();
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/*
 * Others cannot keep values of the announced keys until this transaction is over.  So what may
 * take long, and can be done before, comes before.
 */
static void
before_commit(void)
{
	if (!herald_invalidate_any_pending())
		return;
	herald_slow_ends_do();
	herald_invalidate_publish();
}

/* The end is visible to other sessions; locks are still held. */
static void
at_end(bool committed)
{
	herald_invalidate_end();
	if (!committed)
		herald_store_abort();
	herald_cache_is_involved = false;
}
