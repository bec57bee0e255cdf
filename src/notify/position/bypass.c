/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Counts transactions that bypass our queue by notifying through the server's own queue.
 *
 * Notifications in the server's queue cannot be read again, so a session that reads from an
 * earlier position must not conclude that it has received everything.  Transactions that
 * bypass our queue are numbered, and a token contains the last number of its database.  For
 * each set of channels, each database has the number of the last transaction that may have
 * notified one of them.  If there are too many databases, some share the last counter, which
 * errs on the safe side.  Nothing is counted for a database without counters; whatever needs
 * them, such as a position, claims them.
 *
 * pg_herald does not see what a C function sends by itself, and no position covers these
 * notifications.
 *
 * The server takes a lock before it writes to its queue, and keeps the lock until the
 * transaction is visible and its callbacks have run.
 *
 * [B1] So a transaction is counted while it holds that lock, which only one transaction can
 * hold at a time.  For a moment the transaction is visible before it is counted.  A session
 * that needs the count waits until the lock is free, or held by a transaction that is not
 * visible: then all transactions that were visible when the wait began have been counted.  If
 * the session was registered with the server before the wait, the server delivers the
 * notifications of all transactions that were not visible then.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "base/database.h"
#include "base/notify_locks.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/position/bypass.h"

/* Interval between two checks whether a transaction has been counted. */
#define COUNTING_STEP_US	100

/* Sets of the channels that this transaction notifies through the server's own queue. */
static HeraldChannelSets own_sets;
static bool has_unseen;			/* some of these channels are not known, so
								 * own_sets has all sets */

/* This session has prepared a call that pg_herald does not see; a later transaction may execute it unnoticed. */
static bool keeps_unseen;


void
herald_bypass_add(uint32 channel_hash)
{
	own_sets |= herald_channel_set(channel_hash);
}

void
herald_bypass_add_unseen(void)
{
	own_sets = HERALD_ALL_CHANNEL_SETS;
	has_unseen = keeps_unseen = true;
}

void
herald_bypass_forget(void)
{
	own_sets = 0;
	has_unseen = false;
}

bool
herald_bypass_has_unseen(void)
{
	return has_unseen;
}

/* The added notifications may be rolled back.  If any remain, the transaction has an id and holds the server's lock. */
bool
herald_bypass_is_own(void)
{
	LOCKTAG		lock;

	if ((own_sets == 0 && !keeps_unseen) || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	lock = herald_notify_lock(HERALD_LOCK_SERVER);
	if (!herald_lock_held_by_me(&lock, AccessExclusiveLock))
		return false;
	if (own_sets == 0)
		own_sets = HERALD_ALL_CHANNEL_SETS;
	return true;
}

/* [B1] The caller holds the server's lock, so no other process writes here. */
void
herald_bypass_commit(void)
{
	HeraldDatabase *database = herald_database_find(MyDatabaseId);
	uint32		number;

	HERALD_HOLD_POINT("bypass-count");

	/*
	 * Without an entry of the database there is nothing to count: this
	 * transaction is visible, so any position that is asked for from now on
	 * comes after it.
	 */
	if (database == NULL)
		return;
	number = atomic_load(&database->bypasses) + 1;
	for (int i = 0; i < HERALD_CHANNEL_SETS; i++)
		if (own_sets & UINT64CONST(1) << i)
			atomic_store(&database->last_bypass[i], number);

	/*
	 * Store this number last: a process that has read it need not look for
	 * transactions up to it.
	 */
	atomic_store(&database->bypasses, number);
}

uint32
herald_bypass_count(void)
{
	return atomic_load(&herald_database_claim()->bypasses);
}

/*
 * GetLockConflicts() omits a holder that is already visible.  So the lock's one holder, if
 * returned, is not visible yet.
 */
void
herald_bypass_await_counting(void)
{
	LOCKTAG		lock = herald_notify_lock(HERALD_LOCK_SERVER);

	HERALD_MAY_WAIT();
	for (;;)
	{
		int			holders;

		pfree(GetLockConflicts(&lock, AccessShareLock, &holders));
		if (holders > 0)
			return;
		if (LockAcquire(&lock, AccessShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
		{
			(void) LockRelease(&lock, AccessShareLock, false);
			return;
		}
		HERALD_STOP_POINT("bypass-await");
		CHECK_FOR_INTERRUPTS();
		pg_usleep(COUNTING_STEP_US);
	}
}

bool
herald_bypass_since(uint32 count, HeraldChannelSets sets)
{
	HeraldDatabase *database = herald_database_claim();

	for (int i = 0; i < HERALD_CHANNEL_SETS; i++)
		if (sets & UINT64CONST(1) << i && (int32) (atomic_load(&database->last_bypass[i]) - count) > 0)
			return true;
	return false;
}

HeraldChannelSets
herald_bypass_sets(HeraldChannelSets sets, bool logged, HeraldPosition place)
{
	return logged && place > atomic_load(&herald_database_claim()->settings_place) ? 0 : sets;
}
