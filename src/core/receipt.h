/*-------------------------------------------------------------------------
 *
 * receipt.h
 *	  What a client has received of the logged channels, in terms of the WAL.
 *
 * All servers of a cluster have the same WAL, so a receipt has the same meaning on each of them; a place
 * in one server's queue has not.  src/notify/cursor/README.md has the invariants.
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
	uint64_t	wal;			/* where the record begins; 0: there is none */
	uint64_t	run;			/* of the server that wrote it; 0: not known */
} HeraldWalAnchor;

/* Zeroed: nothing is known, and the client cannot resume by the WAL. */
typedef struct HeraldReceipt
{
	HeraldWalAnchor from;		/* an anchor: everything that the client lacks
								 * has its commit record and the last part of
								 * its message beyond it */
	uint64_t	done;			/* commits that end here or before have been
								 * received */
	HeraldCommitId furthest;	/* the witness: of the commits of which the
								 * client has received something, the one that
								 * ends last; end 0: none beyond `from` */
} HeraldReceipt;

/* The client has received something of this commit. */
extern void herald_receipt_witness(HeraldReceipt *receipt, HeraldCommitId commit);

/*
 * The client has received all of this commit.  What another run has committed is in the queue of the
 * server with own_run in the order of the WAL: then it has received everything before it as well.
 */
extern void herald_receipt_receive(HeraldReceipt *receipt, HeraldCommitId commit, uint64_t own_run);

/* [X1] The client has received everything before the place of this anchor. */
extern void herald_receipt_reach(HeraldReceipt *receipt, HeraldWalAnchor anchor);

/*
 * The client has received everything that a standby's relay had sent when it was at this anchor and had
 * sent this commit last; end 0: none.
 */
extern void herald_receipt_relay(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId last);

/*
 * A client that reads the WAL in its order has received all of this commit.  anchor: the latest one before it at which no
 * transaction was open; wal 0: none.
 */
extern void herald_receipt_read(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId commit);

/* The client has received everything that either receipt says. */
extern void herald_receipt_join(HeraldReceipt *receipt, const HeraldReceipt *other);

/*
 * A reader of several channels has received, of each, what one of the two
 * receipts says: claim no more than both do.  [X3] The witness stays the later
 * one, since something of it was received.
 */
extern void herald_receipt_go_back(HeraldReceipt *receipt, const HeraldReceipt *other);

#endif							/* HERALD_RECEIPT_H */
