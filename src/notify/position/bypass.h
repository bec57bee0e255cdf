/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Counts transactions that bypass our queue: their notifications go through the server's
 *	  own.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_BYPASS_H
#define HERALD_BYPASS_H

#include "postgres.h"

#include "base/channel_hash.h"

/*
 * Before the commit: the server has no notifications of this transaction except those that are
 * handed to it from now on, on the added channels.  Without begin, or after forget, there may
 * be notifications on any channel.  Never fail.
 */
extern void herald_bypass_begin(void);
extern void herald_bypass_add(uint32 channel_hash);
extern void herald_bypass_forget(void);

/*
 * Does the server send notifications of this transaction?  In the callback after its commit
 * has become visible.
 */
extern bool herald_bypass_is_own(void);

/* If it does, count the transaction.  Never fails. */
extern void herald_bypass_commit(void);

/*
 * The number of such transactions in this database, and perhaps in others: only for
 * comparisons.
 */
extern uint32 herald_bypass_count(void);

/*
 * If such a transaction is visible but not counted yet, wait until it is.  In a transaction;
 * may throw.
 */
extern void herald_bypass_await_counting(void);

/*
 * May such a transaction be committing now?  If not, all that committed before are counted.  Never
 * waits.
 */
extern bool herald_bypass_is_any(void);

/*
 * Have more such transactions been counted since `count`, on channels of these sets?  Then our
 * queue does not have all notifications.
 */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

#endif							/* HERALD_BYPASS_H */
