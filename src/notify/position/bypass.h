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
 * _add notes that this transaction notifies a channel with this hash through the server's own queue.  _add_unseen notes
 * the same for a channel that pg_herald does not know.  _forget drops these notes when the transaction is over.  None
 * of these functions fails.
 */
extern void herald_bypass_add(uint32 channel_hash);
extern void herald_bypass_add_unseen(void);
extern void herald_bypass_forget(void);

/* Has this transaction notified on a channel that pg_herald does not know? */
extern bool herald_bypass_has_unseen(void);

/*
 * Has this transaction sent notifications through the server's own queue?  Returns true also for notifications that
 * pg_herald did not notice because an earlier transaction had prepared the call that sent them.  Called when the
 * transaction's commit has become visible.
 */
extern bool herald_bypass_is_own(void);

/* Count this transaction as a bypass.  Called only if herald_bypass_is_own() has returned true.  Never fails. */
extern void herald_bypass_commit(void);

/*
 * Returns the number of transactions of this database that have been counted as bypasses.  If databases share counters,
 * the number includes transactions of the other databases, so use the number only for comparisons.
 */
extern uint32 herald_bypass_count(void);

/*
 * If a transaction that has bypassed our queue is visible but not counted yet, wait until the transaction is counted.
 * Called in a transaction; may throw.
 */
extern void herald_bypass_await_counting(void);

/*
 * Returns true if a bypass with a number above `count` may have notified a channel of these sets.  Then our queue may
 * lack notifications of these channels.
 */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

/*
 * Returns the sets that herald_bypass_since() must check for a client that reads from `place` on.  `sets` are the sets
 * of the client's channels; `logged` is true if all these channels are logged now.  Returns no sets if all these
 * channels are logged now and no setting of the database has changed since `place`: then nothing on these channels has
 * bypassed our queue.
 */
extern HeraldChannelSets herald_bypass_sets(HeraldChannelSets sets, bool logged, HeraldPosition place);

#endif							/* HERALD_BYPASS_H */
