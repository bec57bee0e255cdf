/*-------------------------------------------------------------------------
 *
 * receipt.h
 *	  The notifications of logged channels that a client has received, in terms of the WAL.
 *
 * A primary and its standbys have the same WAL, so a receipt has the same meaning on each of these servers, unlike a
 * place in one server's queue.  src/notify/cursor/README.md has the invariants.
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

/* A place in the WAL from which a reader can begin to read. */
typedef struct HeraldWalAnchor
{
	uint64_t	wal;			/* where the anchor's record begins; 0: there
								 * is no anchor */
	uint64_t	run;			/* the run of the server that wrote the
								 * anchor; 0: the run is not known */
} HeraldWalAnchor;

/* A zeroed receipt claims nothing.  A client with a zeroed receipt cannot resume from the WAL. */
typedef struct HeraldReceipt
{
	HeraldWalAnchor from;		/* an anchor before the last message part, and
								 * before the commit record, of each commit
								 * that the client lacks */
	uint64_t	done;			/* the client has received all commits that
								 * end here or earlier */
	HeraldCommitId furthest;	/* the witness: of the commits after `from` of
								 * which the client has received something,
								 * the commit that ends last; end 0: there is
								 * no such commit */
} HeraldReceipt;

/* Note that the client has received something of this commit. */
extern void herald_receipt_witness(HeraldReceipt *receipt, HeraldCommitId commit);

/*
 * Note that the client has received all of this commit.  own_run: this server's run.  Commits of other runs are in
 * this server's queue in the order of the WAL, so a client that has received such a commit has received all earlier
 * commits, too.
 */
extern void herald_receipt_receive(HeraldReceipt *receipt, HeraldCommitId commit, uint64_t own_run);

/*
 * [X1] Note that the client has received everything before the place in the queue that belongs to the anchor
 * `latest`.  from: the anchor at which a reader must begin.  If the last part of the witness's message may be before
 * `latest`, `from` is an anchor before that part; otherwise `from` is `latest`.
 */
extern void herald_receipt_reach(HeraldReceipt *receipt, HeraldWalAnchor from, HeraldWalAnchor latest);

/*
 * Note that the client has received everything that a standby's relay had put into the queue at the time when
 * HeraldReached.from was `anchor` and HeraldReached.last was `last`.
 */
extern void herald_receipt_relay(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId last);

/*
 * Note that a client that receives commits in the order of the WAL has received all of this commit.  anchor: the
 * latest anchor that is before the commit, and at which no transaction with messages was open; wal 0: there is no such
 * anchor.
 */
extern void herald_receipt_read(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId commit);

/* Add to the first receipt everything that the other receipt claims. */
extern void herald_receipt_join(HeraldReceipt *receipt, const HeraldReceipt *other);

/*
 * Reduce the first receipt to the claims that both receipts make.  Called for a reader of several channels that has
 * received the notifications of some channels up to one receipt, and those of the other channels up to the other
 * receipt.  [X3] The witness of the first receipt becomes the later of the two witnesses, since the reader has
 * received something of both commits.
 */
extern void herald_receipt_go_back(HeraldReceipt *receipt, const HeraldReceipt *other);

#endif							/* HERALD_RECEIPT_H */
