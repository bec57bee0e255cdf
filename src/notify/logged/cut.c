/*-------------------------------------------------------------------------
 *
 * cut.c
 *	  Where a history ends, and the queue goes on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "base/shared.h"
#include "notify/dispatch/dispatch.h"
#include "notify/logged/anchor.h"
#include "notify/logged/cut.h"
#include "notify/logged/relay_state.h"
#include "notify/logged/wal_reader.h"

/* Why there was no cut. */
static const char *reason = "";

static bool shows_conflicts(const HeraldToken *token, HeraldPosition place);
static XLogRecPtr end_of_wal(void);
static void serve_interrupts(void *arg);


/*
 * On a primary: everything below `settled` has its commit record before the end of the WAL as it
 * is found afterwards.  On a standby the relay says which place and which end belong together.
 *
 * The client may have received commits of this very primary from a standby.  They must be below the
 * cut: so wait until everything is settled that has a place now.  If a commit hangs for longer, and
 * one of those is behind it, the client cannot resume (see is_left_to_queue()).
 */
bool
herald_cut_make(const HeraldToken *token, HeraldCut *cut)
{
	HeraldReached reached;
	HeraldPosition head;

	if (herald_relay_is_active())
	{
		/* Without an end it would wait for ever if that was lost at a failover, and nothing comes since. */
		if (!herald_relay_await(Max(token->wal.furthest, token->wal.from + 1)) ||
			!herald_relay_await_visible() || !herald_relay_reached(&reached))
		{
			reason = "this standby has not replayed it yet";
			return false;
		}
		cut->place = reached.place;
		cut->wal = reached.wal;
		cut->in_order = true;
		return true;
	}
	herald_dispatch_attach();	/* this session may dispatch while it waits */
	head = atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);
	herald_settled_wait_before_commit(head, HERALD_COMMIT_WAIT_MS, serve_interrupts, NULL);
	cut->place = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	if (cut->place < head && !shows_conflicts(token, cut->place))
	{
		reason = "a transaction before it is still committing";
		return false;
	}
	cut->wal = end_of_wal();
	cut->in_order = false;
	XLogFlush(cut->wal);
	if (token->wal.furthest > cut->wal)
		reason = "it is beyond the end of the WAL here";
	return token->wal.furthest <= cut->wal;
}

const char *
herald_cut_reason(void)
{
	return reason;
}

/*
 * Something below the head is not settled: it is left to the queue.  Does the history meet all of it,
 * so that it meets what the client has received of it?  That is beyond the latest anchor of that
 * place.  What the relay has put there is in the history already.
 */
static bool
shows_conflicts(const HeraldToken *token, HeraldPosition place)
{
	HeraldReached reached;
	XLogRecPtr	anchor;
	uint64		run;

	if (herald_relay_reached(&reached) && place < reached.place)
		return false;
	return herald_anchor_latest(place, &anchor, &run) && token->wal.from <= anchor;
}

/* The end of the last record: at the begin of a page the server adds the header that is to come. */
static XLogRecPtr
end_of_wal(void)
{
	XLogRecPtr	end = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(end, wal_segment_size) == SizeOfXLogLongPHD)
		return end - SizeOfXLogLongPHD;
	if (end % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return end - SizeOfXLogShortPHD;
	return end;
}

static void
serve_interrupts(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}
