/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Counts transactions that bypass our queue by notifying through the server's own queue.
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
 * Note that this transaction sends notifications through the server's own queue: on a channel
 * with this hash, or (unseen) on a channel that pg_herald does not know.  forget: drop the
 * notes, since the transaction is over.  None of these functions fails.
 */
extern void herald_bypass_add(uint32 channel_hash);
extern void herald_bypass_add_unseen(void);
extern void herald_bypass_forget(void);

/* Has this transaction notified on a channel that pg_herald does not know? */
extern bool herald_bypass_has_unseen(void);

/*
 * Has this transaction sent notifications through the server's own queue?  They were noted, or are unseen ones of
 * a plan that was prepared earlier.  Called when the transaction's commit has become visible.
 */
extern bool herald_bypass_is_own(void);

/* Count this transaction.  Called only if herald_bypass_is_own() is true.  Never fails. */
extern void herald_bypass_commit(void);

/*
 * The number of transactions of this database that have bypassed our queue.  It may include
 * those of other databases, so it is only for comparisons.
 */
extern uint32 herald_bypass_count(void);

/*
 * If a transaction that has bypassed our queue is visible but not counted yet, wait until it
 * is counted.  In a transaction; may throw.
 */
extern void herald_bypass_await_counting(void);

/*
 * Has a transaction with a number above `count` bypassed our queue on a channel of these
 * sets?  If so, our queue may lack notifications.
 */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

/*
 * The sets to check for a client that reads on from this place.  None if all its channels are logged now and
 * were already logged at the place, since nothing on a logged channel bypasses our queue.
 */
extern HeraldChannelSets herald_bypass_sets(HeraldChannelSets sets, bool logged, HeraldPosition place);

#endif							/* HERALD_BYPASS_H */
