/*-------------------------------------------------------------------------
 *
 * wal_history.h
 *	  Which commits in the WAL a client has missed that continues in this server's queue.
 *
 * A history is read from the anchor of the client's position up to the end of the WAL that belongs to
 * a cut: a place in this server's queue.  Each commit that is met is given to the rules here, in the
 * order of the WAL; and so is each anchor.
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
	 * The client's position: it has received everything below `place` in the
	 * queue of `run`, and what the receipt says.
	 */
	uint64_t	run;
	uint64_t	place;
	HeraldReceipt received;

	/* This server, and the place where its queue continues. */
	uint64_t	own_run;
	uint64_t	cut;

	/* What reading has found so far. */
	HeraldReceipt receipt;		/* of a client that has received the whole
								 * history; begins as `received` */
	bool		has_witness;	/* [X3] the WAL is the one that the client's
								 * position is about */
	bool		has_left;		/* a commit has been left to the queue */
} HeraldWalHistory;

typedef enum HeraldWalVerdict
{
	HERALD_WAL_PASS_OVER,		/* it is not for this client, or the queue
								 * will deliver it */
	HERALD_WAL_DELIVER,
	HERALD_WAL_UNDECIDED		/* the client cannot resume: a transaction
								 * before it is still committing */
} HeraldWalVerdict;

/* Reading has met an anchor. */
extern void herald_wal_history_anchor(HeraldWalHistory *history, HeraldWalAnchor anchor);

/* [X2] Reading has met a commit.  is_ours: it is of the client's database. */
extern HeraldWalVerdict herald_wal_history_commit(HeraldWalHistory *history, HeraldCommitId commit, bool is_ours);

/* Is a record that ends there, such as a change of a setting, news for the client? */
extern bool herald_wal_history_concerns(const HeraldWalHistory *history, uint64_t end);

/* Reading has come to the cut.  in_order: the queue before the cut is in the order of the WAL. */
extern void herald_wal_history_end(HeraldWalHistory *history, bool in_order);

#endif							/* HERALD_WAL_HISTORY_H */
