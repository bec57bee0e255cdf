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
#include "core/queue_layout.h"

/*
 * This transaction sends notifications through the server's own queue: on a channel with this
 * hash, or on a channel that pg_herald does not know.  forget: the transaction is over.  Never
 * fail.
 */
extern void herald_bypass_add(uint32 channel_hash);
extern void herald_bypass_add_unseen(void);
extern void herald_bypass_forget(void);

/* Has this transaction notified on a channel that pg_herald does not know? */
extern bool herald_bypass_has_unseen(void);

/*
 * Has this transaction sent notifications through the server's own queue: those that were added, or some that a
 * plan prepared earlier has sent unseen?  Called when its commit has become visible.
 */
extern bool herald_bypass_is_own(void);

/* Count the transaction, if it has.  Never fails. */
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
 * Have more such transactions been counted since `count`, on channels of these sets?  Then our
 * queue does not have all notifications.
 */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

/*
 * The sets that matter to a client that reads on from this place: none if all its channels are logged, and were
 * already logged at that place, since nothing on a logged channel bypasses the queue.
 */
extern HeraldChannelSets herald_bypass_sets(HeraldChannelSets sets, bool logged, HeraldPosition place);

#endif							/* HERALD_BYPASS_H */
