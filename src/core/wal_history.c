/*-------------------------------------------------------------------------
 *
 * wal_history.c
 *	  The commits in the WAL that a client has missed, before it continues in this server's queue.
 *
 * [X2] Each notification that survived is received once.
 *
 * - A commit below the client's position was received.  If it was received by its place, its place is
 *   below `place` in the queue of `run`; if from the WAL or a standby's queue, it ends at `done` or earlier.
 * - A commit between the position and the cut is after the anchor [X1], so the history meets it, and none
 *   of the rules leaves it out.
 * - A commit at the cut or beyond is delivered from the queue.  If its commit record is in the WAL that
 *   is read, the history meets it as well, and leaves it to the queue.
 *
 * A position cannot say that a client has received a commit but lacks one that is earlier in the WAL
 * and left to the queue.  So such a client cannot resume yet.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_history.h"

static bool is_left_to_queue(const HeraldWalHistory *history, HeraldCommitId commit);
static bool is_received(const HeraldWalHistory *history, HeraldCommitId commit);


/* [X3] If there is no commit that could be the witness, the anchor where reading begins is the witness. */
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
	 * [X3] A run uses each place only once, so no other history of the
	 * cluster has this commit.
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
