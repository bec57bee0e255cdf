/*-------------------------------------------------------------------------
 *
 * wal_history.c
 *	  Decides which commits in the WAL a client receives before the client continues in this server's queue.
 *
 * [X2] The client receives each logged notification exactly once, unless a crash or a failover has lost the commit:
 *
 * - The client has received each commit before its position, so these commits are not delivered.  If the client has
 *   received such a commit from the queue of the run that committed it, the commit's place is below `place` in the
 *   queue of `run`.  If the client has received such a commit from the WAL or from a standby's queue, the commit ends
 *   at `done` or earlier.
 * - A commit between the position and the cut is after the anchor [X1], so the reader meets this commit, and no rule
 *   leaves it out.
 * - A commit at the cut or later is delivered from the queue.  If the reader meets its commit record,
 *   is_left_to_queue() leaves the commit to the queue.
 *
 * A position cannot express that a client has received a commit, but not an earlier commit of the WAL that is left to
 * the queue.  A client that would get such a position cannot resume yet.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_history.h"

static bool is_left_to_queue(const HeraldWalHistory *history, HeraldCommitId commit);
static bool is_received(const HeraldWalHistory *history, HeraldCommitId commit);


/* [X3] If the client's position has no commit as its witness, the anchor where reading begins is the witness. */
void
herald_wal_history_anchor(HeraldWalHistory *history, HeraldWalAnchor anchor)
{
	if (history->received.furthest.end == 0 && anchor.wal == history->received.from.wal &&
		anchor.run == history->received.from.run)
		history->has_witness = true;
}

HeraldWalVerdict
herald_wal_history_commit(HeraldWalHistory *history, HeraldCommitId commit, bool is_ours)
{
	const HeraldCommitId *witness = &history->received.furthest;

	/*
	 * [X3] A run uses each place only once, so a commit with this end, run
	 * and place is the witness, and this WAL is the WAL of the position.
	 */
	if (commit.end == witness->end && commit.run == witness->run && commit.place == witness->place)
		history->has_witness = true;

	if (is_left_to_queue(history, commit))
	{
		history->has_left = true;
		return commit.end <= history->received.done || commit.end <= witness->end ?
			HERALD_WAL_UNDECIDED : HERALD_WAL_PASS_OVER;
	}
	herald_receipt_witness(&history->receipt, commit);
	if (!is_ours || is_received(history, commit))
		return HERALD_WAL_PASS_OVER;
	return history->has_left ? HERALD_WAL_UNDECIDED : HERALD_WAL_DELIVER;
}

static bool
is_left_to_queue(const HeraldWalHistory *history, HeraldCommitId commit)
{
	return commit.run == history->own_run && commit.place >= history->cut;
}

static bool
is_received(const HeraldWalHistory *history, HeraldCommitId commit)
{
	return commit.end <= history->received.done ||
		(commit.run == history->run && commit.place < history->place);
}

bool
herald_wal_history_concerns(const HeraldWalHistory *history, uint64_t end)
{
	return end > history->received.done;
}

void
herald_wal_history_end(HeraldWalHistory *history, bool in_order)
{
	if (in_order && history->receipt.done < history->receipt.furthest.end)
		history->receipt.done = history->receipt.furthest.end;
}
