/*-------------------------------------------------------------------------
 *
 * relay.h
 *	  The progress of a standby's relay, in shared memory.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RELAY_H
#define HERALD_RELAY_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

#include "core/queue_layout.h"
#include "core/wal_coverage.h"
#include "core/receipt.h"

/*
 * `wal` and `place` belong together: the relayed notifications below `place` in the queue are exactly those
 * whose commit record ends at or below `wal`.
 */
typedef struct HeraldReached
{
	XLogRecPtr	wal;
	HeraldPosition place;

	/*
	 * The latest anchor before `wal` at which no transaction with messages
	 * was open.  Run 0: there is none yet; then `wal` of this field is where
	 * the relay began to read, or 0 after a part of the WAL was missing.
	 */
	HeraldWalAnchor from;

	HeraldCommitId last;		/* of the last batch before `place`; end 0: no
								 * batch yet */

	/*
	 * From this place on the queue has everything that was sent on the
	 * channels that are logged now.  This is the place where the relay began,
	 * or where the relay last met a change of a setting or left something
	 * out.
	 */
	HeraldPosition complete_from;

	HeraldWalCoverage coverage; /* of the WAL at `wal` */
} HeraldReached;

/* Figures for the view herald.relay. */
typedef struct HeraldRelayFigures
{
	uint64		batches;		/* transactions whose notifications the relay
								 * has put into the queue */
	uint64		forged;			/* messages with our prefix that pg_herald has
								 * not written */
	uint64		newer;			/* messages that a later version of pg_herald
								 * has written */
	uint64		gaps;			/* gaps that were reported in the server log */
	TimestampTz last_commit;	/* time of the last commit record that was
								 * read, except COMMIT PREPARED; 0: none */
} HeraldRelayFigures;

/* Shared memory, for memory.c. */
extern Size herald_relay_shared_size(void);
extern void herald_relay_shared_init(void);

/* Called in the postmaster, before the memory is set up, if there is no background worker for the relay. */
extern void herald_relay_never_begins(void);

/*
 * Called by the relay when it begins, has made progress, and has ended for good.  read_from: where a relay that is
 * started again begins to read: at `wal`, or earlier for the messages of transactions that are open at `wal`.
 */
extern void herald_relay_begin(const HeraldReached *reached, XLogRecPtr read_from);
extern void herald_relay_publish(const HeraldReached *reached, XLogRecPtr read_from);
extern XLogRecPtr herald_relay_read_from(void);
extern void herald_relay_publish_figures(const HeraldRelayFigures *figures);
extern void herald_relay_finish(void);

/*
 * Called by a transaction that changes a setting.  On a promoted server, the part of the queue that the relay filled
 * may lack notifications of newly logged channels, so `complete_from` moves to the end of this part.
 */
extern void herald_relay_own_setting(void);

/* Called by the relay on a server that is no standby: wakes sessions that wait for the relay to begin. */
extern void herald_relay_is_not_needed(void);

/* Get the relay's progress.  False: the relay has not begun, on a primary or on a standby that has just started. */
extern bool herald_relay_reached(HeraldReached *reached);
extern void herald_relay_figures(HeraldRelayFigures *figures);

/*
 * Is the queue still the relay's?  True in recovery when the relay has begun, and after a promotion
 * until the relay has put everything from before the promotion into the queue.
 */
extern bool herald_relay_is_active(void);

/*
 * Wait, in a transaction, until the queue is no longer the relay's.  Called by a sender before it
 * reserves, and before settings change.  May throw what interrupts throw.
 */
extern void herald_relay_await_end(void);

/*
 * [X4] Wait, in a transaction, until the relay of this standby has begun, and has met evidence that the primary runs
 * pg_herald: from then on the relay puts all later commits into the queue, or a gap.  Called by a session that begins to
 * listen, or asks for a position; returns at once on a primary.  Throws 55000 if the evidence is to the contrary, or if
 * there is no evidence after a while (herald_wal_wait_left()); a serialization failure like herald_relay_await(); an
 * error if the relay never begins; and what interrupts throw.
 */
extern void herald_relay_await_evidence(void);

/*
 * Does the queue have everything that was sent on a channel from this place on?  logged: the channel is logged now; on a
 * standby the caller finds that out, then calls herald_relay_await_visible(), and then this function.
 */
extern bool herald_relay_covers(HeraldPosition place, bool logged);

/*
 * Wait, in a transaction, until the relay has reached all commits that a snapshot of this standby shows now.  False:
 * the wait takes too long (herald_wal_wait_left()).  Throws if the relay never begins, and what interrupts throw.
 */
extern bool herald_relay_await_visible(void);

/*
 * Wait, in a transaction, until the relay has reached `wal`, or has ended.  False: the wait takes too long.
 * Throws serialization_failure if replay waits for queries, perhaps for this one; and what interrupts throw.
 */
extern bool herald_relay_await(XLogRecPtr wal);

#endif							/* HERALD_RELAY_H */
