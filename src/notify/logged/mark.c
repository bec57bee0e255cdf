/*-------------------------------------------------------------------------
 *
 * mark.c
 *	  What this session's client has received of the logged channels, in terms of the WAL.
 *
 * A place in this server's queue means nothing elsewhere.  So each token also says where to read
 * the WAL, and which commits to leave out there.
 *
 * On a primary the queue is in the order of reservations, the WAL in that of commits.  An anchor is
 * put into the WAL, and the head of the queue is read after that: whatever has its place at the
 * head or beyond was reserved later than the anchor, so its messages and its commit record are
 * beyond it.  A client that has received everything before the head thus misses nothing that was
 * committed up to the anchor.  Of what was committed beyond it, the client has received what has a
 * place before its own: the messages in the WAL contain their places.
 *
 * On a standby the queue is in the order of the WAL, and the relay says up to which commit.
 *
 * A commit that the client has received may be lost at a failover, or at a crash with
 * synchronous_commit = off.  The end of the furthest one, with the run and the place in its
 * message, is a witness: a server whose WAL has another commit there, or none, has another history.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/shared.h"
#include "notify/dispatch/dispatch.h"
#include "notify/logged/anchor.h"
#include "notify/logged/log_writer.h"
#include "notify/logged/relay_state.h"
#include "notify/logged/mark.h"

static HeraldWalMark mark;		/* of this session */

static void add_reached(HeraldWalMark *of, const HeraldReached *reached);



/*
 * On a standby first the relay's place, then `settled`: what the relay has put into the queue is
 * committed, and so is settled soon, if it is not yet.
 */
HeraldWalMark
herald_mark_of_server(HeraldPosition *settled)
{
	HeraldWalMark found = {0};
	HeraldCommitEntry last = {0};
	HeraldReached reached;

	if (herald_relay_is_active() && herald_relay_reached(&reached))
	{
		herald_dispatch_attach();
		herald_dispatch_catch_up(reached.place);
		*settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
		if (reached.place <= *settled)
			add_reached(&found, &reached);
		return found;
	}
	(void) herald_log_last_commit(&last.commit_end, &last.run, &last.place);
	*settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	herald_mark_witness(&found, &last);
	herald_mark_advance(&found, *settled);
	return found;
}

void
herald_mark_begin(void)
{
	HeraldPosition settled;

	mark = herald_mark_of_server(&settled);
}

/* What the client knows of settings goes back as well: it counts from `done`. */
void
herald_mark_go_back(const HeraldWalMark *received)
{
	if (received->done < mark.done || (received->done == mark.done && received->furthest <= mark.furthest))
		mark = *received;
}

void
herald_mark_send(const HeraldCommitEntry *commit)
{
	herald_mark_receive(&mark, commit);
}

HeraldWalMark
herald_mark_at(HeraldPosition position)
{
	herald_mark_advance(&mark, position);
	return mark;
}

void
herald_mark_receive_history(const HeraldWalMark *received)
{
	herald_mark_join(&mark, received);
}

/*
 * Everything before the position has been received: does that cover a later anchor, or more of
 * what the relay has read?  `done` is always the end of a commit that can be a witness, or an
 * anchor: what another server has written beyond the last witness may differ from what this
 * server has there.
 */
void
herald_mark_advance(HeraldWalMark *of, HeraldPosition position)
{
	HeraldWalMark found = {0};
	HeraldReached reached;

	if (herald_anchor_latest(position, &found.from, &found.witness_run))
	{
		found.done = found.from;

		/* The message of the witness must be beyond the anchor as well. */
		if (of->furthest > found.from && of->witness_run == herald_control->server_run)
			(void) herald_anchor_latest(Min(position, of->witness_place), &found.from, &found.witness_run);
		herald_mark_join(of, &found);
	}
	else if (herald_relay_reached(&reached) && reached.place <= position)
		add_reached(of, &reached);
}

static void
add_reached(HeraldWalMark *of, const HeraldReached *reached)
{
	HeraldWalMark found = {
		.from = reached->from,
		.done = Max(reached->from, reached->last.commit_end),
		.witness_run = reached->from_run,
	};

	herald_mark_witness(&found, &reached->last);
	herald_mark_join(of, &found);
}

void
herald_mark_join(HeraldWalMark *of, const HeraldWalMark *other)
{
	HeraldCommitEntry last = {other->witness_run, other->witness_place, other->furthest};

	of->done = Max(of->done, other->done);
	if (other->from > of->from)
	{
		of->from = other->from;
		if (of->furthest <= of->from)
		{
			of->furthest = InvalidXLogRecPtr;
			of->witness_run = other->witness_run;
			of->witness_place = 0;
		}
	}
	if (other->furthest != InvalidXLogRecPtr)
		herald_mark_witness(of, &last);
}

/*
 * What the relay has put into the queue is in the order of the WAL: so everything before the batch
 * has been received as well.
 */
void
herald_mark_receive(HeraldWalMark *of, const HeraldCommitEntry *commit)
{
	herald_mark_witness(of, commit);
	if (commit->commit_end > of->done && commit->run != herald_control->server_run)
		of->done = commit->commit_end;
}

void
herald_mark_witness(HeraldWalMark *of, const HeraldCommitEntry *commit)
{
	if (commit->commit_end <= of->furthest || commit->commit_end <= of->from)
		return;
	of->furthest = commit->commit_end;
	of->witness_run = commit->run;
	of->witness_place = commit->place;
}
