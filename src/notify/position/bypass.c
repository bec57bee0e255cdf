/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Counts transactions that bypass our queue: their notifications go through the server's
 *	  own.
 *
 * Notifications in the server's queue cannot be read again, so a session that reads from an
 * earlier position must not be led to believe that it has received everything.  These
 * transactions are numbered, and a token contains the last number of its database.  For each
 * set of channels there is the number of the last transaction that may have notified one of
 * them.  If there are too many databases, some share the last counter, which errs on the safe
 * side.
 *
 * Our hooks do not see all such transactions: C functions can notify, and so can expressions
 * that are prepared once and used for long.  But the server takes a lock before it writes to
 * its queue, and keeps it until the transaction is visible and the callbacks have run.
 *
 * [B1] So a transaction is counted while it holds that lock, which only one transaction can
 * hold at a time.  For a moment it is visible before it is counted.  A session that needs the
 * count waits until the lock is free, or held by a transaction that is not visible: then all
 * transactions that were visible when the wait began have been counted.  If the session was
 * registered with the server before, the server delivers the notifications of all transactions
 * that were not visible.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "base/notify_locks.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/position/bypass.h"

/* Interval between two checks whether a transaction has been counted. */
#define COUNTING_STEP_US	100

/* Sets of this transaction's channels, if is_known. */
static HeraldChannelSets own_sets;
static bool is_known;

static HeraldBypass *own_counter(void);


void
herald_bypass_begin(void)
{
	own_sets = 0;
	is_known = true;
}

void
herald_bypass_add(uint32 channel_hash)
{
	own_sets |= herald_channel_set(channel_hash);
}

void
herald_bypass_forget(void)
{
	is_known = false;
}

/* The server's NOTIFY assigns an id, so a transaction without one has not notified there. */
bool
herald_bypass_is_own(void)
{
	LOCKTAG		lock;

	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	lock = herald_notify_lock(HERALD_LOCK_SERVER);
	return herald_lock_held_by_me(&lock, AccessExclusiveLock);
}

/* [B1] with the server's lock held: no other process writes here */
void
herald_bypass_commit(void)
{
	HeraldBypass *counter = own_counter();
	HeraldChannelSets sets = is_known ? own_sets : HERALD_ALL_CHANNEL_SETS;
	uint32		number = atomic_load(&counter->count) + 1;

	HERALD_HOLD_POINT("bypass-count");
	for (int i = 0; i < HERALD_CHANNEL_SETS; i++)
		if (sets & UINT64CONST(1) << i)
			atomic_store(&counter->last[i], number);

	/*
	 * Store this last: a process that reads this number need not look for transactions up to
	 * it.
	 */
	atomic_store(&counter->count, number);
}

uint32
herald_bypass_count(void)
{
	return atomic_load(&own_counter()->count);
}

/*
 * GetLockConflicts() omits a holder that is already visible.  If it returns another holder, no
 * visible transaction holds the lock.
 */
void
herald_bypass_await_counting(void)
{
	LOCKTAG		lock = herald_notify_lock(HERALD_LOCK_SERVER);

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
herald_bypass_is_any(void)
{
	LOCKTAG		lock = herald_notify_lock(HERALD_LOCK_SERVER);

	if (LockAcquire(&lock, AccessShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	(void) LockRelease(&lock, AccessShareLock, true);
	return false;
}

bool
herald_bypass_since(uint32 count, HeraldChannelSets sets)
{
	HeraldBypass *counter = own_counter();

	for (int i = 0; i < HERALD_CHANNEL_SETS; i++)
		if (sets & UINT64CONST(1) << i && (int32) (atomic_load(&counter->last[i]) - count) > 0)
			return true;
	return false;
}

/* This database's counter: always the same one. */
static HeraldBypass *
own_counter(void)
{
	static HeraldBypass *found;
	HeraldBypass *bypasses = herald_control->bypasses;

	for (int i = 0; i < HERALD_BYPASSES - 1 && found == NULL; i++)
	{
		uint32		owner = 0;

		if (atomic_compare_exchange_strong(&bypasses[i].database, &owner, MyDatabaseId) || owner == MyDatabaseId)
			found = &bypasses[i];
	}
	if (found == NULL)
		found = &bypasses[HERALD_BYPASSES - 1];
	return found;
}
