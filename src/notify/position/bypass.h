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

/* Is there one of which pg_herald does not know the channel? */
extern bool herald_bypass_has_unseen(void);

/*
 * Does the server send notifications of this transaction that were added, or, if none were, of calls
 * that this session has prepared earlier?  In the callback after its commit has become visible.
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
 * Have more such transactions been counted since `count`, on channels of these sets?  Then our
 * queue does not have all notifications.
 */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

/*
 * The sets to ask for, of a client that reads on from this place: none if all the channels are
 * logged, and were already then.  What is logged does not bypass the queue, whatever others send.
 */
extern HeraldChannelSets herald_bypass_sets(HeraldChannelSets sets, bool logged, HeraldPosition place);

#endif							/* HERALD_BYPASS_H */
