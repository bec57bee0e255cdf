/*-------------------------------------------------------------------------
 *
 * inval_reader.c
 *	  This backend as a reader of invalidations.
 *
 * A backend joins the queue when it first uses a cache, and reads on whenever it uses one.  A
 * backend that uses none for long is signalled when it is far behind.  A backend that has
 * missed messages drops all cached values.
 *
 * core/freshness.c decides which values may be kept.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/count.h"
#include "core/freshness.h"
#include "core/stop_point.h"
#include "inval/cache_shared.h"
#include "inval/catch_up.h"
#include "inval/invalidate.h"
#include "inval/inval_reader.h"
#include "inval/subscribers.h"

static HeraldFreshness *freshness;	/* NULL: we have never joined */
static bool must_join;			/* some messages have not been applied */
static uint32 *not_missed;		/* memory that *freshness uses */
static uint32 *committing;		/* room for herald_inval_queue->slots +
								 * max_prepared_xacts */
static bool joined_in_recovery;

static void join(void);
static uint32 ask_prepared(uint32 *xids);
static uint32 without_future(uint32 *xids, uint32 count);
static void read_on(void);
static void read_to_end(void);
static bool skip(void);
static void catch_up(void *arg);
static HeraldVisibility present(void);
static void note(uint32 bucket, TransactionId xid, const HeraldVisibility *seen);
static uint32 bucket_of(uint32 cache, uint32 key);
static HeraldVisibility visibility(Snapshot snapshot);
static void leave_at_exit(int code, Datum arg);


void
herald_inval_reader_accept(void)
{
	uint32		slot = herald_my_slot();

	/*
	 * Temporary tables are dropped at exit, in a transaction: we may have
	 * left the queue already.
	 */
	if (proc_exit_inprogress)
		return;

	if (freshness == NULL || must_join || freshness->is_worn_out ||
		(joined_in_recovery && !RecoveryInProgress()))
		join();
	else if (!herald_inval_is_current(herald_inval_queue, slot))
		read_on();
}

bool
herald_inval_reader_may_keep(uint32 cache, uint32 key, Snapshot snapshot)
{
	HeraldVisibility seen;

	/* A standby does not receive its primary's invalidations. */
	if (freshness == NULL || must_join || joined_in_recovery || snapshot == NULL ||
		snapshot->snapshot_type != SNAPSHOT_MVCC || snapshot->takenDuringRecovery ||
		RecoveryInProgress())
		return false;

	/*
	 * The server would not see what a serializable transaction reads from a
	 * cache.
	 */
	if (IsolationIsSerializable())
		return false;

	if (herald_invalidate_any_pending() &&
		(herald_invalidate_is_pending(cache, key) ||
		 herald_invalidate_is_pending(cache, HERALD_KEY_ALL) ||
		 herald_invalidate_is_pending(HERALD_KEY_ALL, HERALD_KEY_ALL)))
		return false;

	seen = visibility(snapshot);
	if (TransactionIdIsValid(MyProc->xmin))
		(void) herald_freshness_advance(freshness, MyProc->xmin);
	return herald_freshness_sees_missed(freshness, &seen) &&
		herald_freshness_sees(freshness, bucket_of(cache, key), &seen) &&
		herald_freshness_sees(freshness, bucket_of(cache, HERALD_KEY_ALL), &seen) &&
		herald_freshness_sees(freshness, bucket_of(HERALD_KEY_ALL, HERALD_KEY_ALL), &seen);
}

/*
 * Join the queue, for the first time or after an overrun: all messages up to now are missed.
 * Those of their transactions that may not be over are collected from the writers' slots, and
 * then from the prepared transactions.  A snapshot taken afterwards sees the transactions that
 * are over [I7].
 */
static void
join(void)
{
	HeraldInvalQueue *queue = herald_inval_queue;
	uint32		slot = herald_my_slot();
	uint32		committing_count = 0;
	HeraldVisibility seen;

	if (freshness == NULL)
	{
		HeraldCacheUse *use = herald_cache_my_use();
		HeraldFreshness *fresh = MemoryContextAlloc(TopMemoryContext, sizeof(HeraldFreshness));

		committing = MemoryContextAlloc(TopMemoryContext,
										(queue->slots + max_prepared_xacts) * sizeof(uint32));
		not_missed = MemoryContextAlloc(TopMemoryContext,
										(GetMaxSnapshotXidCount() + queue->slots + max_prepared_xacts) *
										sizeof(uint32));
		herald_freshness_init(fresh);
		atomic_store_explicit(&use->database, MyDatabaseId, memory_order_relaxed);
		atomic_store_explicit(&use->role, GetSessionUserId(), memory_order_relaxed);
		atomic_store_explicit(&use->values, 0, memory_order_relaxed);
		atomic_store_explicit(&use->bytes, 0, memory_order_relaxed);
		atomic_store_explicit(&use->hits, 0, memory_order_relaxed);
		atomic_store_explicit(&use->misses, 0, memory_order_relaxed);
		atomic_store_explicit(&use->invalidations, 0, memory_order_relaxed);
		atomic_store_explicit(&use->resets, 0, memory_order_relaxed);
		herald_catch_up_handle(catch_up);
		before_shmem_exit(leave_at_exit, (Datum) 0);

		/*
		 * A process that gives us a turn has seen our word, which comes
		 * later.
		 */
		atomic_store_explicit(&use->process, herald_my_proc_number(), memory_order_relaxed);
		atomic_store_explicit(&use->pid, MyProcPid, memory_order_seq_cst);
		freshness = fresh;
	}
	must_join = true;			/* until this has succeeded */

	/*
	 * After a promotion we must join again: transactions that the primary has
	 * prepared since are missed too.
	 */
	joined_in_recovery = RecoveryInProgress();

	LWLockAcquire(herald_cache_control->invalidation_lock, LW_EXCLUSIVE);
	herald_inval_join(queue, slot);
	LWLockRelease(herald_cache_control->invalidation_lock);
	HERALD_HOLD_POINT("invalidation-joined");

	/* [I7] pairs with herald_invalidate_publish() and herald_invalidate_end() */
	for (uint32 i = 0; i < queue->slots; i++)
	{
		uint32		xid = atomic_load_explicit(&queue->readers[i].committing, memory_order_seq_cst);

		if (xid != 0)
			committing[committing_count++] = xid;
	}
	HERALD_HOLD_POINT("invalidation-writers-asked");
	committing_count += ask_prepared(committing + committing_count);
	HERALD_FAULT_POINT("invalidation-joined-and-asked");
	InvalidateCatalogSnapshot();
	seen = visibility(GetNonHistoricCatalogSnapshot(InvalidOid));
	committing_count = without_future(committing, committing_count);
	herald_invalidation_apply(HERALD_KEY_ALL, HERALD_KEY_ALL);
	herald_freshness_join(freshness, &seen, committing, committing_count, not_missed);
	must_join = false;
	herald_catch_up_wake(herald_inval_caught_up(queue, slot));
}

/*
 * Collect the ids of this database's prepared transactions.  It is not known whether they have
 * invalidated anything: that may have been before a restart.  Returns their number.
 */
static uint32
ask_prepared(uint32 *xids)
{
	uint32		count = 0;

	if (max_prepared_xacts == 0)
		return 0;
	LWLockAcquire(TwoPhaseStateLock, LW_SHARED);
	for (int i = 0; i < max_prepared_xacts; i++)
	{
		const PGPROC *prepared = &PreparedXactProcs[i];

		if (TransactionIdIsNormal(prepared->xid) && prepared->databaseId == MyDatabaseId)
			xids[count++] = prepared->xid;
	}
	LWLockRelease(TwoPhaseStateLock);
	return count;
}

/*
 * Remove ids that are in the future.  A free entry for prepared transactions has the id of its
 * last one.  That transaction is over, which does no harm; but when ids have advanced by half
 * of their range, it seems to be a future one, and would be waited for.  Called after taking
 * the snapshot; returns the number of ids left.
 */
static uint32
without_future(uint32 *xids, uint32 count)
{
	TransactionId next = ReadNextTransactionId();
	uint32		left = 0;

	for (uint32 i = 0; i < count; i++)
		if (TransactionIdPrecedes(xids[i], next))
			xids[left++] = xids[i];
	return left;
}

/*
 * Read everything, and hand the turn on.  If so much has come meanwhile that the turn is this backend's again, read on: the
 * handler of a reason must not send that reason to its own process.
 */
static void
read_on(void)
{
	uint32		slot = herald_my_slot();
	int32		next;

	do
	{
		read_to_end();
		next = herald_inval_caught_up(herald_inval_queue, slot);
	} while (next == (int32) slot);
	herald_catch_up_wake(next);
}

static void
read_to_end(void)
{
	uint32		slot = herald_my_slot();
	HeraldCacheUse *use = herald_cache_my_use();
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];
	int			n;

	while ((n = herald_inval_read(herald_inval_queue, slot, messages)) != 0)
	{
		HeraldVisibility seen;

		if (n < 0)
		{
			if (skip())
				continue;
			herald_count(&use->resets, 1);
			atomic_fetch_add_explicit(&herald_cache_control->resets, 1, memory_order_relaxed);
			join();
			continue;
		}

		/* If another module's callback throws, the rest is not applied. */
		must_join = true;
		seen = present();
		for (int i = 0; i < n; i++)
		{
			const HeraldInvalidation *message = &messages[i];

			if (message->database != MyDatabaseId)
				continue;
			herald_count(&use->invalidations, 1);
			note(bucket_of(message->cache, message->key), message->xid, &seen);
			herald_invalidation_apply(message->cache, message->key);
		}
		must_join = false;
	}
}

/*
 * Continue if only messages of other databases were missed.  False: messages of our database
 * may have been missed.
 */
static bool
skip(void)
{
	bool		result;

	LWLockAcquire(herald_cache_control->invalidation_lock, LW_EXCLUSIVE);
	result = herald_inval_skip(herald_inval_queue, herald_my_slot(), MyDatabaseId);
	LWLockRelease(herald_cache_control->invalidation_lock);
	return result;
}

/* Handles the signal that this backend is far behind. */
static void
catch_up(void *arg)
{
	HERALD_HOLD_POINT("catch-up");

	/* A process that exits has handed the turn on. */
	if (proc_exit_inprogress)
		return;
	herald_inval_reader_accept();

	/* There may have been nothing to read: hand the turn on in any case. */
	read_on();
}

/*
 * The transactions in progress for this backend's statements; in an idle backend, for future
 * statements.  For that it uses the server's catalog snapshot, which the server releases
 * before it waits for the client.
 */
static HeraldVisibility
present(void)
{
	Snapshot	snapshot = ActiveSnapshotSet() ? GetActiveSnapshot() : NULL;

	if (snapshot == NULL || snapshot->snapshot_type != SNAPSHOT_MVCC || snapshot->takenDuringRecovery)
		snapshot = GetNonHistoricCatalogSnapshot(InvalidOid);
	return visibility(snapshot);
}

static void
note(uint32 bucket, TransactionId xid, const HeraldVisibility *seen)
{
	/*
	 * For a moment during PREPARE TRANSACTION snapshots contain an id twice,
	 * so their lengths do not show which one is older.
	 */
	if (max_prepared_xacts > 0)
		herald_freshness_note(freshness, bucket, xid, MyProc->xmin);
	else
		herald_freshness_note_seen(freshness, bucket, xid, seen);
}

static uint32
bucket_of(uint32 cache, uint32 key)
{
	return hash_combine(cache, key);
}

static HeraldVisibility
visibility(Snapshot snapshot)
{
	HeraldVisibility result = {
		.xmin = snapshot->xmin,
		.xmax = snapshot->xmax,
		.running = snapshot->xip,
		.count = snapshot->xcnt,
	};

	return result;
}

static void
leave_at_exit(int code, Datum arg)
{
	int32		wake;

	LWLockReleaseAll();
	HERALD_HOLD_POINT("invalidation-leave");
	wake = herald_inval_leave(herald_inval_queue, herald_my_slot());
	herald_catch_up_wake(wake);
	atomic_store_explicit(&herald_cache_my_use()->values, 0, memory_order_relaxed);
	atomic_store_explicit(&herald_cache_my_use()->pid, 0, memory_order_relaxed);
}
