/*-------------------------------------------------------------------------
 *
 * wal_history.h
 *	  The commits in the WAL that a client has missed, before it continues in this server's queue.
 *
 * A history is read from the anchor of the client's position up to a cut, which is an end of the WAL
 * and the place in this server's queue that belongs to that end.  The reader passes each commit and
 * each anchor that it meets to the functions here, in the order of the WAL.
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
	 * in the queue of `run`, and what `received` says.
	 */
	uint64_t	run;
	uint64_t	place;
	HeraldReceipt received;

	/* This server's run, and the place where its queue continues. */
	uint64_t	own_run;
	uint64_t	cut;

	/* The results of reading so far. */
	HeraldReceipt receipt;		/* the receipt of a client that has received
								 * the whole history so far; `received` at
								 * first */
	bool		has_witness;	/* [X3] this is the WAL of the client's
								 * position */
	bool		has_left;		/* a commit has been left to the queue */
} HeraldWalHistory;

typedef enum HeraldWalVerdict
{
	HERALD_WAL_PASS_OVER,		/* the commit is not for this client, or the
								 * queue will deliver it */
	HERALD_WAL_DELIVER,
	HERALD_WAL_UNDECIDED		/* the client cannot resume, since an earlier
								 * transaction is still committing */
} HeraldWalVerdict;

/* Reading has met an anchor. */
extern void herald_wal_history_anchor(HeraldWalHistory *history, HeraldWalAnchor anchor);

/* [X2] Reading has met a commit.  is_ours: it is of the client's database. */
extern HeraldWalVerdict herald_wal_history_commit(HeraldWalHistory *history, HeraldCommitId commit, bool is_ours);

/* Is a record that ends here, such as a change of a setting, news for the client? */
extern bool herald_wal_history_concerns(const HeraldWalHistory *history, uint64_t end);

/* Reading has ended, at the cut or earlier.  in_order: the queue up to the cut is in the order of the WAL. */
extern void herald_wal_history_end(HeraldWalHistory *history, bool in_order);

#endif							/* HERALD_WAL_HISTORY_H */
