/*-------------------------------------------------------------------------
 *
 * receipt.c
 *	  The notifications of logged channels that a client has received, in terms of the WAL.
 *
 * On a primary, the queue is in the order of reservations, and the WAL is in the order of commits.  An anchor is put
 * into the WAL, and then the head of the queue is read.  [X1] A batch whose place is at that head or later was
 * reserved after the anchor was written, so the last part of its message and its commit record are after the anchor.
 * Thus a client that has received everything before that head lacks no commit before the anchor.  Of the commits after
 * the anchor, the client has received those whose place in the queue is before the client's place.  A commit's place
 * is in its message in the WAL.
 *
 * On a standby, the queue is in the order of the WAL, and the relay publishes the last commit that it has put into the
 * queue.
 *
 * [X3] A commit that the client has received may be lost at a failover, or at a crash with synchronous_commit = off.
 * So the furthest commit that the client has received is the witness: the client can resume only on a server whose
 * WAL has this commit with the same end.  After the witness, another server may have written a different WAL.  So
 * `done` is always the place of an anchor, or the end of a commit that can be a witness.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "receipt.h"

#include <string.h>

static bool is_usable(const HeraldReceipt *receipt);
static uint64_t later(uint64_t one, uint64_t other);


void
herald_receipt_witness(HeraldReceipt *receipt, HeraldCommitId commit)
{
	if (commit.end > receipt->furthest.end && commit.end > receipt->from.wal)
		receipt->furthest = commit;
}

void
herald_receipt_receive(HeraldReceipt *receipt, HeraldCommitId commit, uint64_t own_run)
{
	herald_receipt_witness(receipt, commit);
	if (commit.run != own_run)
		receipt->done = later(receipt->done, commit.end);
}

void
herald_receipt_reach(HeraldReceipt *receipt, HeraldWalAnchor from, HeraldWalAnchor latest)
{
	const HeraldReceipt reached = {.from = from,.done = latest.wal};

	herald_receipt_join(receipt, &reached);
}

void
herald_receipt_relay(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId last)
{
	HeraldReceipt relayed = {.from = anchor,.done = later(anchor.wal, last.end)};

	herald_receipt_witness(&relayed, last);
	herald_receipt_join(receipt, &relayed);
}

void
herald_receipt_read(HeraldReceipt *receipt, HeraldWalAnchor anchor, HeraldCommitId commit)
{
	if (anchor.wal > receipt->from.wal)
		receipt->from = anchor;
	receipt->done = commit.end;
	herald_receipt_witness(receipt, commit);
}

void
herald_receipt_join(HeraldReceipt *receipt, const HeraldReceipt *other)
{
	receipt->done = later(receipt->done, other->done);
	if (other->from.wal > receipt->from.wal)
	{
		receipt->from = other->from;
		if (receipt->furthest.end <= receipt->from.wal)
			memset(&receipt->furthest, 0, sizeof(receipt->furthest));
	}
	herald_receipt_witness(receipt, other->furthest);
}

/*
 * If one of the receipts cannot be used to resume, the result is that receipt, since with the witness of the other
 * receipt the result would seem usable.
 */
void
herald_receipt_go_back(HeraldReceipt *receipt, const HeraldReceipt *other)
{
	HeraldCommitId witness = receipt->furthest;

	if (!is_usable(receipt))
		return;
	if (!is_usable(other))
	{
		*receipt = *other;
		return;
	}
	if (other->from.wal < receipt->from.wal)
		receipt->from = other->from;
	if (other->done < receipt->done)
		receipt->done = other->done;
	receipt->furthest = other->furthest;
	herald_receipt_witness(receipt, witness);
}

static bool
is_usable(const HeraldReceipt *receipt)
{
	return receipt->from.run != 0 || receipt->furthest.end != 0;
}

static uint64_t
later(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}
