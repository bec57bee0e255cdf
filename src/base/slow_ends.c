/*-------------------------------------------------------------------------
 *
 * slow_ends.c
 *	  What the server does at the end of a transaction, and may take long, while other sessions would wait.
 *
 * All of it runs before the commit record, but after our callback: when our batch has its place in the queue,
 * all other senders would wait with us.  So some of it is done in our callback, by the server's own functions; the
 * server then calls them again, and they find nothing left to do.
 *
 * That second call is an assumption about the server, which no interface promises: look at
 * CommitTransaction() of each new major version.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/storage.h"
#include "commands/async.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "libpq/be-fsstubs.h"
#include "utils/fmgrprotos.h"

#include "base/compat.h"
#include "base/slow_ends.h"

/*
 * The server's own queue is long if more than this fraction of it is in use: about a megabyte
 * at its default size.
 */
#define SERVER_QUEUE_LONG	0.0001

static void do_on_commit_actions(void);
static void do_lengthy_ends(void);


void
herald_slow_ends_do(void)
{
	do_on_commit_actions();
	do_lengthy_ends();
}

/*
 * A session that begins to listen is also registered with the server, which then reads its
 * whole own queue for that database: perhaps gigabytes.
 */
bool
herald_slow_ends_has_long_queue(void)
{
	return DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) > SERVER_QUEUE_LONG;
}

/*
 * ON COMMIT actions, which truncate or drop tables, can wait for another session's lock.  The
 * server runs them after our callback; but once our batch has its place in the queue, all
 * other sessions would wait with us.  So run them before that.  The cleared flag, which means
 * that temporary tables were used, makes the server skip them.
 */
static void
do_on_commit_actions(void)
{
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) == 0)
		return;
	PreCommit_on_commit_actions();
	MyXactFlags &= ~(int) XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
}

/*
 * With wal_level = minimal, data in new tables is not in the WAL yet: after our callback the
 * server writes it, perhaps gigabytes, to the disk or into the WAL, depending on a user's
 * setting (wal_skip_threshold).  It does so before it takes the lock of its own NOTIFY, so if
 * such a transaction notifies natively, no session waits for it.
 */
bool
herald_slow_ends_has_syncs(void)
{
	return !XLogIsNeeded() && EstimatePendingSyncsSpace() > sizeof(HeraldRelFile);
}

/*
 * Free state that the server would free at the end of the transaction, which can take long:
 * events of deferred triggers, and large objects that were left open (the time to close them
 * grows with the square of their number).  The server then finds none.
 */
static void
do_lengthy_ends(void)
{
	AfterTriggerEndXact(true);
	AtEOXact_LargeObject(true);
}
