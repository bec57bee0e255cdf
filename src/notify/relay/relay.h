/*-------------------------------------------------------------------------
 *
 * relay.h
 *	  How far the relay of a standby has come, in shared memory.
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
 * What belongs together: all logged notifications whose commit record ends at or below `wal` are
 * in the queue below `place`, and nothing else is.
 */
typedef struct HeraldReached
{
	XLogRecPtr	wal;
	HeraldPosition place;

	/*
	 * The latest anchor before the first message of each transaction that was
	 * open at `wal`.  Until the relay has met one: where it began to read,
	 * and run 0.
	 */
	HeraldWalAnchor from;

	HeraldCommitId last;		/* the last batch before `place`; end 0: none
								 * yet */

	/*
	 * From this place on the queue has everything that was sent on the
	 * channels that are logged now.  It is the place where the relay began,
	 * or where it last met a change of a setting or left something out.
	 */
	HeraldPosition complete_from;

	HeraldWalCoverage coverage; /* of the WAL at `wal` */
} HeraldReached;

/* For the view. */
typedef struct HeraldRelayFigures
{
	uint64		batches;		/* transactions whose notifications it has put
								 * into the queue */
	uint64		forged;			/* messages that pg_herald has not written */
	uint64		newer;			/* messages of later versions */
	uint64		gaps;			/* how often notifications could not be read
								 * or sent */
	TimestampTz last_commit;	/* time of the last commit record that it has
								 * read; 0: none */
} HeraldRelayFigures;

/* Shared memory, for memory.c. */
extern Size herald_relay_shared_size(void);
extern void herald_relay_shared_init(void);

/* Called in the postmaster, before the memory is set up, if there is no background worker for the relay. */
extern void herald_relay_never_begins(void);

/*
 * Called by the relay.  read_from: where it begins to read if it is started again, `wal` or the first message of a
 * transaction that is open there.
 */
extern void herald_relay_begin(const HeraldReached *reached, XLogRecPtr read_from);
extern void herald_relay_publish(const HeraldReached *reached, XLogRecPtr read_from);
extern XLogRecPtr herald_relay_read_from(void);
extern void herald_relay_publish_figures(const HeraldRelayFigures *figures);
extern void herald_relay_finish(void);

/*
 * Called when a setting changes on a promoted server.  The part of the queue that the relay filled may lack
 * notifications of newly logged channels.
 */
extern void herald_relay_own_setting(void);

/* Called by the relay on a server that is no standby, since a session may be waiting for it to begin. */
extern void herald_relay_is_not_needed(void);

/* False: the relay has not begun, since the server is a primary, or has only just become a standby. */
extern bool herald_relay_reached(HeraldReached *reached);
extern void herald_relay_figures(HeraldRelayFigures *figures);

/*
 * Is the queue still the relay's?  In recovery, and after a promotion until the relay has put
 * everything from before the promotion into it.
 */
extern bool herald_relay_is_active(void);

/*
 * Wait, in a transaction, until the queue is not the relay's any more: by a sender, before it
 * reserves.  May throw what interrupts throw.
 */
extern void herald_relay_await_end(void);

/*
 * [X4] Wait, in a transaction, until the relay of this standby has begun, and has met evidence that the primary runs
 * pg_herald: what commits from then on it puts into the queue, or a gap.  By a session that begins to listen, or asks
 * for a position; returns at once on a primary.  Throws 55000 if there is evidence to the contrary, or none after a while
 * (herald_wal_wait_left()); a serialization failure as herald_relay_await(); and if the relay never begins, and what
 * interrupts throw.
 */
extern void herald_relay_await_evidence(void);

/*
 * Does the queue have everything that was sent on a channel from this place on?  logged: the channel is logged now; on a
 * standby the caller finds that out first, and then waits for herald_relay_await_visible().
 */
extern bool herald_relay_covers(HeraldPosition place, bool logged);

/*
 * Wait, in a transaction, until the relay has come to what a snapshot of this standby shows now.  False: it
 * takes too long (herald_wal_wait_left()).  May throw what interrupts throw.
 */
extern bool herald_relay_await_visible(void);

/*
 * Wait, in a transaction, until the relay has come to this position, or has ended.  False: it takes too long.  Throws
 * serialization_failure if replay is blocked by queries, perhaps by this one; and what interrupts throw.
 */
extern bool herald_relay_await(XLogRecPtr wal);

#endif							/* HERALD_RELAY_H */
