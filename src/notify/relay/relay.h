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
 * The relay's progress.  `wal` and `place` denote the same point: the relayed notifications below `place` in the queue
 * are exactly those whose commit record ends at `wal` or earlier.
 */
typedef struct HeraldReached
{
	XLogRecPtr	wal;
	HeraldPosition place;

	/*
	 * The latest anchor before `wal` that is not between the first message
	 * and the end of any transaction.  from.run 0: the relay has not met such
	 * an anchor yet; then from.wal is the place where the relay began to
	 * read, or 0 if the relay has skipped a missing part of the WAL.
	 */
	HeraldWalAnchor from;

	/*
	 * The last commit in the WAL that is of one of two kinds: the relay has
	 * put its notifications into the queue before `place`; or the relay has
	 * not sent them, since the commit was replayed before the relay began, or
	 * before the relay continued after a missing part of the WAL.  end 0:
	 * there is no such commit yet.
	 */
	HeraldCommitId last;

	/*
	 * The queue has everything that was sent at this place or later on the
	 * channels that are logged now.  This place is where the relay last
	 * began, met a change of a setting, or left something out.  If this
	 * server has changed a setting itself after its promotion, this place is
	 * the end of the part of the queue that the relay has filled.
	 */
	HeraldPosition complete_from;

	HeraldWalCoverage coverage; /* the coverage of the WAL at `wal`; if the
								 * relay has met a gap beyond `wal`, the
								 * coverage after this gap */
} HeraldReached;

/* Figures for the view herald.relay. */
typedef struct HeraldRelayFigures
{
	uint64		batches;		/* number of transactions whose notifications
								 * the relay has put into the queue */
	uint64		forged;			/* number of messages with our prefix that
								 * pg_herald has not written */
	uint64		newer;			/* number of messages that a later version of
								 * pg_herald has written */
	uint64		gaps;			/* number of gaps that were reported in the
								 * server log */
	TimestampTz last_commit;	/* commit time in the last commit record that
								 * the relay has read, not counting records of
								 * COMMIT PREPARED; 0: no such record was read */
} HeraldRelayFigures;

/* Size and initialization of the shared memory, called by memory.c. */
extern Size herald_relay_shared_size(void);
extern void herald_relay_shared_init(void);

/*
 * Record that the relay will have no background worker.  Called in the postmaster before herald_relay_shared_init().
 */
extern void herald_relay_never_begins(void);

/*
 * Called by the relay: _begin when the relay begins, or continues after a missing part of the WAL; _publish when
 * *reached or read_from has changed; and _finish when the relay has ended for good.  read_from: the place in the WAL
 * where the relay begins to read if it is started again; _read_from returns this place.  The place is reached->wal, or
 * an earlier one if transactions that are open at reached->wal may have written messages before it that can still be
 * read.
 */
extern void herald_relay_begin(const HeraldReached *reached, XLogRecPtr read_from);
extern void herald_relay_publish(const HeraldReached *reached, XLogRecPtr read_from);
extern XLogRecPtr herald_relay_read_from(void);
extern void herald_relay_publish_figures(const HeraldRelayFigures *figures);
extern void herald_relay_finish(void);

/*
 * Called by a transaction that changes a setting.  On a promoted server, the part of the queue that the relay has
 * filled may lack notifications on channels that become logged by the change, so `complete_from` moves to the end of
 * this part.
 */
extern void herald_relay_own_setting(void);

/* Wake sessions that wait for the relay to begin.  Called by the relay if the server is not in recovery. */
extern void herald_relay_is_not_needed(void);

/*
 * Get the relay's progress.  Returns false if the relay has not begun, for example on a server that was started as a
 * primary, or on a standby that has just started.
 */
extern bool herald_relay_reached(HeraldReached *reached);
extern void herald_relay_figures(HeraldRelayFigures *figures);

/*
 * Does the relay fill the queue now?  The relay begins in recovery, and ends after a promotion, when it has put
 * everything from before the promotion into the queue.
 */
extern bool herald_relay_is_active(void);

/*
 * Wait until the relay no longer fills the queue.  Returns at once in recovery.  Called by a sender before it reserves
 * a place in the queue, and by a transaction that changes settings before it excludes senders.  Throws what interrupts
 * throw.
 */
extern void herald_relay_await_end(void);

/*
 * [X4] Wait until the relay of this standby has begun, and has met evidence that the primary runs pg_herald.  After
 * that, the relay puts the logged notifications of each later commit, or a gap, into the queue.  Called in a
 * transaction, by a session that begins to listen, resumes, or asks for a position.  Returns at once on a primary,
 * unless its relay is still active.  Throws 55000 if the WAL shows that the primary runs without pg_herald, or if the
 * relay meets no evidence in the time that herald_wal_wait_left() allows.  Throws serialization_failure if replay waits
 * for queries, perhaps for this one.  Throws 53400 if the relay has no background worker.  Throws what interrupts throw.
 */
extern void herald_relay_await_evidence(void);

/*
 * Does the queue have everything that was sent on a channel at this place or later?  logged: is the channel logged now?
 * The settings that are read on a standby may be newer than the relay's progress.  So the caller must have called
 * herald_relay_await_visible() after reading them.
 */
extern bool herald_relay_covers(HeraldPosition place, bool logged);

/*
 * Wait until the relay has reached all commits that are visible to a snapshot taken now on this standby.  Returns true
 * at once on a primary, unless its relay is still active.  Called in a transaction.  Returns false if the wait takes
 * longer than herald_wal_wait_left() allows.  Throws 53400 if the relay has no background worker.  Throws what interrupts throw.
 */
extern bool herald_relay_await_visible(void);

/*
 * Wait until the relay has reached the place `wal` in the WAL, or has ended.  Called in a transaction, after the relay
 * has begun.  Returns false if the wait takes longer than herald_wal_wait_left() allows.  Throws serialization_failure
 * if replay waits for queries, perhaps for this one, at a record before `wal`.  Throws what interrupts throw.
 */
extern bool herald_relay_await(XLogRecPtr wal);

#endif							/* HERALD_RELAY_H */
