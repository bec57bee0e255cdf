/*-------------------------------------------------------------------------
 *
 * wal_mark.c
 *	  What a client has received of the logged channels, in terms of the WAL.
 *
 * On a primary the queue is in the order of reservations, the WAL in that of commits.  An anchor is
 * put into the WAL, and the head of the queue is read after that.  [X1] Whatever has its place at that
 * head or beyond was reserved later than the anchor, so the last part of its message and its commit
 * record are beyond it.  A client that has received everything before the head thus misses nothing
 * that was committed up to the anchor.  Of what was committed beyond it, the client has received what
 * has a place before its own: the messages in the WAL contain their places.
 *
 * On a standby the queue is in the order of the WAL, and the relay says up to which commit.
 *
 * [X3] A commit that the client has received may be lost at a failover, or at a crash with
 * synchronous_commit = off.  The furthest one is a witness: a server whose WAL has another commit at
 * its end, or none, has another history.  `done` is always the end of a commit that can be a witness,
 * or an anchor: what another server has written beyond the witness may differ from what was here.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_mark.h"

#include <string.h>

static uint64_t later(uint64_t one, uint64_t other);


void
herald_wal_mark_witness(HeraldWalMark *mark, HeraldCommitId commit)
{
	if (commit.end > mark->furthest.end && commit.end > mark->from.wal)
		mark->furthest = commit;
}

void
herald_wal_mark_receive(HeraldWalMark *mark, HeraldCommitId commit, uint64_t own_run)
{
	herald_wal_mark_witness(mark, commit);
	if (commit.run != own_run)
		mark->done = later(mark->done, commit.end);
}

void
herald_wal_mark_reach(HeraldWalMark *mark, HeraldWalAnchor anchor)
{
	const HeraldWalMark reached = {.from = anchor,.done = anchor.wal};

	herald_wal_mark_join(mark, &reached);
}

void
herald_wal_mark_relay(HeraldWalMark *mark, HeraldWalAnchor anchor, HeraldCommitId last)
{
	HeraldWalMark relayed = {.from = anchor,.done = later(anchor.wal, last.end)};

	herald_wal_mark_witness(&relayed, last);
	herald_wal_mark_join(mark, &relayed);
}

void
herald_wal_mark_read(HeraldWalMark *mark, HeraldWalAnchor anchor, HeraldCommitId commit)
{
	if (anchor.wal > mark->from.wal)
		mark->from = anchor;
	mark->done = commit.end;
	herald_wal_mark_witness(mark, commit);
}

void
herald_wal_mark_join(HeraldWalMark *mark, const HeraldWalMark *other)
{
	mark->done = later(mark->done, other->done);
	if (other->from.wal > mark->from.wal)
	{
		mark->from = other->from;
		if (mark->furthest.end <= mark->from.wal)
			memset(&mark->furthest, 0, sizeof(mark->furthest));
	}
	herald_wal_mark_witness(mark, other->furthest);
}

/*
 * Neither mark need say less in all respects.  With a later `from` a reader could miss a transaction whose message is before
 * that.  What the client knows of settings counts from `done` as well.
 */
bool
herald_wal_mark_is_before(const HeraldWalMark *mark, const HeraldWalMark *other)
{
	return mark->from.wal < other->from.wal || mark->done < other->done ||
		(mark->done == other->done && mark->furthest.end <= other->furthest.end);
}

static uint64_t
later(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}
