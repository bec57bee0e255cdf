/*-------------------------------------------------------------------------
 *
 * cut.c
 *	  The cut: where reading the WAL ends, and this server's queue continues.
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
 * The relay publishes a place together with the end of the WAL that belongs to the place.  Of the client's anchor
 * only the beginning is known, so wait until the relay is beyond that beginning.
 */
static HeraldGone
cut_of_relay(const HeraldReceipt *received, HeraldCut *cut)
{
	HeraldReached reached;

	if (!herald_relay_await(Max(received->furthest.end, received->from.wal + 1)) ||
		!herald_relay_await_visible() || !herald_relay_reached(&reached))
		return herald_gone_history("this standby has not replayed it yet");
	cut->place = reached.place;
	cut->wal = reached.wal;
	cut->in_order = true;
	return herald_gone(HERALD_GONE_NOTHING);
}

/*
 * The end of the WAL is read after `settled`, so each committed batch below `settled` has its record before that end.
 *
 * [X2] The client may have received commits of this primary from a standby.  Their batches must be below the cut, so
 * wait until all batches that have a place now are settled, for HERALD_COMMIT_WAIT_MS at most.  If a commit hangs for
 * longer, and a commit that the client has received is after it in the queue, the client cannot resume
 * (core/wal_history.c).
 */
static HeraldGone
cut_of_primary(const HeraldReceipt *received, HeraldCut *cut)
{
	HeraldPosition head;

	herald_dispatch_attach();	/* needed because this session may dispatch
								 * while it waits */
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
 * Some batches below the head are not settled, and so are left to the queue.  The client may have received some of
 * them elsewhere.  True if the history meets all commits of such batches, and so notices received ones.  Their records
 * are after the latest anchor that belongs to the cut, so reading must begin at that anchor or earlier.  False if
 * batches of the relay are not settled, since both the history and the queue would deliver these.
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
 * The end of the last record.  If the next record will begin a page, GetXLogInsertRecPtr() returns a position after
 * the page's header, which is not written yet: subtract the header.
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
