/*-------------------------------------------------------------------------
 *
 * receipt.h
 *	  What a client has received of the logged channels, in terms of the WAL.
 *
 * All servers of a cluster have the same WAL, so a receipt has the same meaning on each of them, unlike
 * a place in one server's queue.  src/notify/cursor/README.md has the invariants.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RECEIPT_H
#define HERALD_RECEIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "commit_id.h"

/* A place in the WAL from which it can be read. */
typedef struct HeraldWalAnchor
{
	uint64_t	wal;			/* where the anchor's record begins; 0: there
								 * is no anchor */
	uint64_t	run;			/* the run of the server that wrote the
								 * anchor; 0: not known */
} HeraldWalAnchor;

/* A zeroed receipt says nothing, and its client cannot resume by the WAL. */
typedef struct HeraldReceipt
{
	HeraldWalAnchor from;		/* an anchor; each commit that the client
								 * lacks has its record and the last part of
								 * its message after this anchor */
	uint64_t	done;			/* commits that end here or earlier have been
								 * received */
	HeraldCommitId furthest;	/* the witness: the latest-ending commit of
								 * which the client has received something;
								 * end 0: none after `from` */
} HeraldReceipt;

/* The client has received something of this commit. */
extern void herald_receipt_witness(HeraldReceipt *receipt, HeraldCommitId commit);

/*
 * The client has received all of this commit.  own_run: this server's run.  Commits of other runs
 * are in this server's queue in the order of the WAL: after such a commit, the client has
 * received everything earlier as well.
 */
extern void herald_receipt_receive(HeraldReceipt *receipt, HeraldCommitId commit, uint64_t own_run);

/*
 * [X1] The client has received everything before the place of the anchor `latest`.  from: this anchor, or an
 * earlier one after which the message of the witness is.
 */
extern void herald_receipt_reach(HeraldReceipt *receipt, HeraldWalAnchor from, HeraldWalAnchor latest);

/*
 * The client has received all that a standby's relay had put into the queue when the relay's anchor was
 * `anchor`, and its last commit was `last` (last.end 0: none).
 */
extern void herald_receipt_relay(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId last);

/*
 * A client that reads the WAL in its order has received all of this commit.  anchor: the latest one before the
 * commit, with no transaction open at the anchor; wal 0: none.
 */
extern void herald_receipt_read(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId commit);

/* The client has received everything that either receipt says. */
extern void herald_receipt_join(HeraldReceipt *receipt, const HeraldReceipt *other);

/*
 * A reader of several channels has received of each channel what one of the two receipts says.  Let the
 * first receipt claim only what both claim.  [X3] Its witness becomes the later of the two witnesses,
 * since the reader has received something of each.
 */
extern void herald_receipt_go_back(HeraldReceipt *receipt, const HeraldReceipt *other);

#endif							/* HERALD_RECEIPT_H */
