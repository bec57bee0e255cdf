/*-------------------------------------------------------------------------
 *
 * wal_history.h
 *	  Decides which commits in the WAL a client receives before the client continues in this server's queue.
 *
 * A history is read from the anchor of the client's position up to a cut.  A cut is an end of the WAL, and the place
 * in this server's queue that belongs to this end.  The reader of the WAL passes each commit and each anchor to the
 * functions here, in the order of the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_HISTORY_H
#define HERALD_WAL_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "commit_id.h"
#include "receipt.h"

typedef struct HeraldWalHistory
{
	/*
	 * The client's position: the client has received everything below `place`
	 * in the queue of `run`, and everything that `received` covers.
	 */
	uint64_t	run;
	uint64_t	place;
	HeraldReceipt received;

	/* This server's run, and the place of the cut in this server's queue. */
	uint64_t	own_run;
	uint64_t	cut;

	/* The results so far. */
	HeraldReceipt receipt;		/* the receipt of a client that has received
								 * all commits of the history so far; at first
								 * a copy of `received` */
	bool		has_witness;	/* [X3] the witness was met, so the WAL that
								 * is read is the WAL of the client's position */
	bool		has_left;		/* at least one commit was left to the queue */
} HeraldWalHistory;

typedef enum HeraldWalVerdict
{
	HERALD_WAL_PASS_OVER,		/* do not deliver the commit: the client has
								 * received it, it is of another database, or
								 * the queue will deliver it */
	HERALD_WAL_DELIVER,
	HERALD_WAL_UNDECIDED		/* the client cannot resume now, since a
								 * transaction that is still committing holds
								 * up the queue */
} HeraldWalVerdict;

/* Note an anchor that was met in the WAL. */
extern void herald_wal_history_anchor(HeraldWalHistory *history, HeraldWalAnchor anchor);

/* [X2] Decide whether to deliver a commit that was met in the WAL.  is_ours: is it of the client's database? */
extern HeraldWalVerdict herald_wal_history_commit(HeraldWalHistory *history, HeraldCommitId commit, bool is_ours);

/*
 * May the client not know a record that ends at `end`, for example a change of a setting?  It knows everything up to
 * its receipt's `done`.
 */
extern bool herald_wal_history_concerns(const HeraldWalHistory *history, uint64_t end);

/*
 * Note that reading has ended, at the cut or earlier.  in_order: is the queue before the cut in the order of the WAL?
 */
extern void herald_wal_history_end(HeraldWalHistory *history, bool in_order);

#endif							/* HERALD_WAL_HISTORY_H */
