/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Counts transactions that bypass our queue by notifying through the server's own queue.
 *
 * Notifications in the server's own queue cannot be read again.  So if such notifications were sent after a position, a
 * session that reads from this position must not conclude that it has received everything.  The transactions of a
 * database that bypass our queue are numbered, and a token contains the last number of its database.  The channels are
 * divided into sets.  For each set, a database has the number of the last bypass that may have notified a channel of
 * the set.  If there are too many databases, some of them share one group of counters, so a session may take a bypass
 * of another database for a bypass of its own database.  Nothing is counted for a database without counters; a function
 * that needs counters, for example to take a position, first claims counters for its database.
 *
 * pg_herald does not see notifications that a C function sends by calling Async_Notify().  Such notifications are not
 * counted, so a client that resumes after a position may miss them without notice.
 *
 * The server takes a lock before it writes to its queue, and keeps the lock until the transaction is visible and the
 * transaction's callbacks have run.  Only one transaction can hold this lock at a time.
 *
 * [B1] A transaction is counted in one of these callbacks, while it holds the lock.  So for a moment the transaction is
 * visible, but not counted yet.  A session that needs the count waits until the lock is free, or until the holder of
 * the lock is a transaction that is not visible.  Then all transactions that were visible when the wait began have been
 * counted.  If the session was registered with the server as a listener before the wait, the server delivers to the
 * session the notifications of all transactions that were not visible when the wait began.
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

/* The sets of the channels that this transaction notifies, or may notify, through the server's own queue. */
static HeraldChannelSets own_sets;
static bool has_unseen;			/* this transaction notifies channels that
								 * pg_herald does not know, so own_sets has
								 * all sets */

/*
 * This session may have prepared a call of pg_notify() whose channel pg_herald does not see.  A later transaction may
 * execute the call again, and pg_herald does not notice the execution.
 */
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

/*
 * The noted notifications may have been rolled back with a subtransaction.  If any of them remain, the transaction has
 * an id, and holds the lock of the server's queue.  So this function checks both.
 */
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

/* [B1] The caller holds the lock of the server's queue, so no other process writes the database's counters. */
void
herald_bypass_commit(void)
{
	HeraldDatabase *database = herald_database_find(MyDatabaseId);
	uint32		number;

	HERALD_HOLD_POINT("bypass-count");

	/*
	 * If the database has no counters, this transaction need not be counted:
	 * it is visible, so each position that is taken later is after this
	 * transaction.
	 */
	if (database == NULL)
		return;
	number = atomic_load(&database->bypasses) + 1;
	for (int i = 0; i < HERALD_CHANNEL_SETS; i++)
		if (own_sets & UINT64CONST(1) << i)
			atomic_store(&database->last_bypass[i], number);

	/*
	 * Store `bypasses` last.  So a process that first reads a number from
	 * `bypasses`, and then checks `last_bypass`, misses no transaction up to
	 * this number.  Its next check need only look for higher numbers.
	 */
	atomic_store(&database->bypasses, number);
}

uint32
herald_bypass_count(void)
{
	return atomic_load(&herald_database_claim()->bypasses);
}

/*
 * GetLockConflicts() omits a holder whose transaction is already visible.  So if GetLockConflicts() returns a holder,
 * the holder's transaction is not visible yet, and the wait can end.  Nothing wakes this session when a visible holder
 * releases the lock.
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
		herald_wait_sleep(HERALD_WAIT_DISPATCH, HERALD_LOOK_MIN_MS);
		CHECK_FOR_INTERRUPTS();
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
