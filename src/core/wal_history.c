/*-------------------------------------------------------------------------
 *
 * wal_history.c
 *	  Which commits in the WAL a client has missed that continues in this server's queue.
 *
 * [X2] Each notification that survived is received once.
 *
 * - Below the client's position: it has received it.  By its place, then it is below the place of the
 *   position's run; or by the WAL, or from the queue of a standby, then it ends at `done` or before.
 * - Between the position and the cut: it is beyond the anchor [X1], so the history meets it, and none
 *   of the rules leaves it out.
 * - At the cut or beyond: the queue delivers it.  If its commit record is before the end of the WAL,
 *   the history meets it as well, and leaves it to the queue.
 *
 * No position could say that a client has received a commit, and lacks one before it in the WAL that
 * is left to the queue.  So such a client cannot resume yet.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_history.h"

static bool is_left_to_queue(const HeraldWalHistory *history, HeraldCommitId commit);
static bool is_received(const HeraldWalHistory *history, HeraldCommitId commit);


/* [X3] Without a commit that could be the witness, it is the anchor where reading begins. */
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
	 * [X3] A run gives each place once: no other history of the cluster has
	 * this commit.
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
