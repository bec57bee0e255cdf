/*-------------------------------------------------------------------------
 *
 * reader.c
 *	  This backend as a reader of invalidations.
 *
 * A backend joins the queue when it first uses a cache, and reads on whenever it
 * uses one; one that does not for long is signalled when it is far behind.
 * A backend that has missed some forgets everything.
 *
 * What may be kept is decided by core/freshness.c.
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

#include "base/attention.h"
#include "base/shared.h"
#include "cache/invalidation/catch_up.h"
#include "cache/invalidation/invalidate.h"
#include "cache/invalidation/reader.h"
#include "cache/invalidation/subscribers.h"
#include "core/freshness.h"
#include "core/stop_point.h"

static HeraldFreshness *freshness;	/* NULL: we have never joined */
static bool must_join;			/* some messages were not acted on */
static uint32 *not_missed;		/* part of it */
static uint32 *committing;		/* room for herald_inval_queue->slots + max_prepared_xacts */
static bool joined_in_recovery;

static void join(void);
static uint32 ask_prepared(uint32 *xids);
static uint32 without_future(uint32 *xids, uint32 count);
static void read_on(void);
static bool skip(void);
static void catch_up(void *arg);
static HeraldVisibility present(void);
static void note(uint32 bucket, TransactionId xid, const HeraldVisibility *seen);
static uint32 bucket_of(uint32 cache, uint32 key);
static HeraldVisibility visibility(Snapshot snapshot);
static void leave_at_exit(int code, Datum arg);


void
herald_invalidation_accept(void)
{
	uint32		slot = herald_shared_my_slot();

	/* Temporary tables are dropped at exit, in a transaction: we may have left by then. */
	if (proc_exit_inprogress)
		return;

	if (freshness == NULL || must_join || freshness->is_worn_out ||
		(joined_in_recovery && !RecoveryInProgress()))
		join();
	else if (!herald_inval_is_current(herald_inval_queue, slot))
		read_on();
}

bool
herald_invalidation_may_keep(uint32 cache, uint32 key, Snapshot snapshot)
{
	HeraldVisibility seen;

	/* A standby is not told of what its primary invalidates. */
	if (freshness == NULL || must_join || joined_in_recovery || snapshot == NULL ||
		snapshot->snapshot_type != SNAPSHOT_MVCC || snapshot->takenDuringRecovery ||
		RecoveryInProgress())
		return false;

	/* A serializable transaction would not notice what it depends on. */
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
 * Everything up to now is missed, for the first time or because we were overrun.
 * What was in the queue then and may not be over is asked of the writers, and then
 * of the prepared transactions; what is over is seen by a snapshot that is taken
 * afterwards [I7].
 */
static void
join(void)
{
	HeraldInvalQueue *queue = herald_inval_queue;
	uint32		slot = herald_shared_my_slot();
	uint32		committing_count = 0;
	HeraldVisibility seen;

	if (freshness == NULL)
	{
		HeraldCacheUse *use = &herald_slots[slot].cache;
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
		herald_attention_to(HERALD_REASON_CATCH_UP, catch_up, NULL);
		before_shmem_exit(leave_at_exit, (Datum) 0);
		freshness = fresh;
	}
	must_join = true;			/* until this has succeeded */

	/* Then transactions that our primary has prepared since are missed, too, after a promotion. */
	joined_in_recovery = RecoveryInProgress();

	LWLockAcquire(herald_control->invalidation_lock, LW_EXCLUSIVE);
	herald_inval_join(queue, slot);
	LWLockRelease(herald_control->invalidation_lock);
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
	herald_invalidation_wake(herald_inval_caught_up(queue, slot));
}

/*
 * The ids of the prepared transactions of this database, of which nobody knows
 * if they have invalidated anything: it may have been before a restart.  Returns
 * how many.
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
 * A place for a prepared transaction that is free has the id of the last one
 * that was there.  That is over, which does no harm; but when ids have gone half of the
 * way around since, it seems to be one that is yet to come, and would be waited
 * for.  After the snapshot; returns how many are left.
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

static void
read_on(void)
{
	uint32		slot = herald_shared_my_slot();
	HeraldCacheUse *use = &herald_slots[slot].cache;
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
			herald_shared_count(HERALD_COUNT_CACHE_RESETS, 1);
			join();
			continue;
		}

		/* A callback of another module's that throws leaves the rest unread. */
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
	herald_invalidation_wake(herald_inval_caught_up(herald_inval_queue, slot));
}

/* Others' databases have filled the queue.  False: we may have missed something of our own. */
static bool
skip(void)
{
	bool		result;

	LWLockAcquire(herald_control->invalidation_lock, LW_EXCLUSIVE);
	result = herald_inval_skip(herald_inval_queue, herald_shared_my_slot(), MyDatabaseId);
	LWLockRelease(herald_control->invalidation_lock);
	return result;
}

/* We were far behind. */
static void
catch_up(void *arg)
{
	HERALD_HOLD_POINT("catch-up");
	herald_invalidation_accept();

	/* There may have been nothing to read any more. */
	herald_invalidation_wake(herald_inval_caught_up(herald_inval_queue, herald_shared_my_slot()));
}

/*
 * What is in progress as this backend's statements see it; in an idle one, as
 * they will.  That is asked of a snapshot of the server's own for catalogs: it
 * lets go of it before it waits for the client.
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
	 * For a moment of PREPARE TRANSACTION snapshots have an id twice, so their
	 * lengths do not tell which is older.
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
	return (HeraldVisibility) {
		.xmin = snapshot->xmin,
		.xmax = snapshot->xmax,
		.running = snapshot->xip,
		.count = snapshot->xcnt,
	};
}

static void
leave_at_exit(int code, Datum arg)
{
	int32		wake;

	LWLockReleaseAll();
	HERALD_HOLD_POINT("invalidation-leave");
	wake = herald_inval_leave(herald_inval_queue, herald_shared_my_slot());
	herald_invalidation_wake(wake);
	atomic_store_explicit(&herald_slots[herald_shared_my_slot()].cache.values, 0, memory_order_relaxed);
}
