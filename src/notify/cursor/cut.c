/*-------------------------------------------------------------------------
 *
 * cut.c
 *	  The cut: where a reader changes from the WAL to this server's queue.
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
#include "notify/cursor/cut.h"
#include "notify/dispatch/dispatch.h"
#include "notify/position/anchor.h"
#include "notify/position/bypass.h"
#include "notify/relay/relay.h"
#include "notify/settings/channel_settings.h"

static HeraldGone cut_of_relay(const HeraldReceipt *received, HeraldCut *cut);
static HeraldGone cut_of_primary(const HeraldReceipt *received, HeraldCut *cut);
static bool shows_conflicts(const HeraldReceipt *received, HeraldPosition place);
static XLogRecPtr end_of_wal(void);
static void serve_interrupts(void *arg);


HeraldGone
herald_cut_make(const HeraldReceipt *received, HeraldCut *cut)
{
	herald_bypass_await_counting();
	cut->bypasses = herald_bypass_count();
	cut->settings = herald_channel_settings_version();
	return herald_relay_is_active() ? cut_of_relay(received, cut) : cut_of_primary(received, cut);
}

/*
 * The cut is the progress that the relay has published.  First wait until the relay has reached the end of the witness
 * and has passed the client's anchor.  The receipt has only the beginning of the anchor's record, so any place after
 * this beginning counts as past the anchor.
 */
static HeraldGone
cut_of_relay(const HeraldReceipt *received, HeraldCut *cut)
{
	HeraldReached reached;

	if (!herald_relay_await(Max(received->furthest.end, received->from.wal + 1)) ||
		!herald_relay_await_visible() || !herald_relay_reached(&reached))
		return herald_gone(HERALD_GONE_RELAY);
	cut->place = reached.place;
	cut->wal = reached.wal;
	cut->in_order = true;
	return herald_gone(HERALD_GONE_NOTHING);
}

/*
 * Load `settled` before the end of the WAL, so that each committed batch below `settled` has its commit record before
 * this end.
 *
 * [X2] The client may have received commits of this primary from a standby.  The batches of these commits must be
 * below the cut, so wait until all batches that have a place now are settled, but for at most HERALD_COMMIT_WAIT_MS.
 * If a transaction is still committing after this time, and the client has received a commit whose batch is after this
 * transaction's batch in the queue, the client cannot resume (core/wal_history.c).
 */
static HeraldGone
cut_of_primary(const HeraldReceipt *received, HeraldCut *cut)
{
	HeraldPosition head;

	herald_dispatch_attach();	/* needed since the wait below may dispatch
								 * batches */
	head = atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);
	herald_dispatch_wait_before_commit(head, HERALD_COMMIT_WAIT_MS, serve_interrupts, NULL);
	cut->place = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	if (cut->place < head && !shows_conflicts(received, cut->place))
		return herald_gone_history("a transaction before it is still committing");
	cut->wal = end_of_wal();
	cut->in_order = false;
	XLogFlush(cut->wal);
	if (received->furthest.end > cut->wal)
		return herald_gone_history("it is beyond the end of the WAL here");
	return herald_gone(HERALD_GONE_NOTHING);
}

/*
 * Called if the queue is settled only up to `place`.  The batches from `place` on are left to the queue, but the client
 * may have received some of them elsewhere.  To find out which, a reader that begins at the client's anchor must meet
 * the commit records of all these batches.  The records are after the latest anchor whose place in the queue is `place`
 * or earlier.  So returns true if the client's anchor is not later than that anchor.  But returns false if the relay
 * has put some of the batches into the queue: the client would receive these twice, from the WAL and from the queue.
 */
static bool
shows_conflicts(const HeraldReceipt *received, HeraldPosition place)
{
	HeraldReached reached;
	HeraldWalAnchor anchor;

	if (herald_relay_reached(&reached) && place < reached.place)
		return false;
	return herald_anchor_latest(place, &anchor) && received->from.wal <= anchor.wal;
}

/*
 * Returns the end of the last record in the WAL.  If the next record will be the first on its page,
 * GetXLogInsertRecPtr() returns the place after the page's header.  This header is not written yet, so subtract its
 * size.
 */
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
