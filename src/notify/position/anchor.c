/*-------------------------------------------------------------------------
 *
 * anchor.c
 *	  Anchors: places in the WAL from which a reader can begin to read.
 *
 * An anchor is a message in the WAL with the run of the server, a random number that each start of a server draws.  A
 * token contains the place of an anchor in the WAL and, unless the token has a commit as its witness (core/receipt.c),
 * the anchor's run.  A reader that finds an anchor of the token's run at the token's place knows that it reads the WAL
 * of that run.
 *
 * An anchor at `wal` is published together with a place in the queue, `place`.  The logged notifications of a batch are
 * in the WAL as a message in parts.  The last part is written after the batch has got its place in the queue, the other
 * parts before.  If a batch is at `place` or later, its last part and its commit record are after `wal`.  The reason is
 * that `place` is the head of the queue, read after the anchor was inserted.  Records get their places in the WAL under
 * a spinlock.  If a last part is before the anchor, the batch's sender took this spinlock before the anchor's writer
 * did.  The sender had moved the head beyond its batch even earlier, so the batch is below `place`.  The other parts
 * may be before the anchor.  A reader finds them nevertheless, since the last part says where the first part begins.
 *
 * The first anchor gets an earlier `place` than the head, if this run has neither written nor relayed a message when
 * the anchor is inserted: the place where the relay has ended, or 0 if there was no relay.  So positions between this
 * place and the head have an anchor, too.  No logged notification was sent there, and no setting was changed.  A
 * process sets `logs` before it writes a setting or the last part of a message (herald_anchor_precede()), and insert()
 * reads `logs` after it has inserted the anchor.  So if insert() finds `logs` not set, the last parts of all messages
 * of this run are after the anchor, by the argument about the spinlock above.
 *
 * Positions of laggards need older anchors, so several anchors are kept.  When there is no room for another anchor,
 * every second anchor is dropped, but neither the first anchor nor the last one.
 *
 * An anchor is published when it cannot be lost any more, that is, when it is on the disk of this server and of the
 * synchronous standbys, if there are any.  If anchors were published earlier, a failover could lose a client's anchor
 * without losing anything that the client has received.  The first anchor of a run does not wait for the standbys, and
 * no anchor waits while fewer standbys are connected than commits wait for (is_safe()).
 *
 * [X4] A server may run for a while without pg_herald, and commit notifications that are not logged.  So a server
 * with pg_herald writes an anchor between the beginning of a run (a shutdown checkpoint or an end of recovery) and
 * the run's first commit record.  For this purpose, each session reads `run_is_announced` in shared memory before it
 * commits, and writes an anchor if this flag is not set.  A reader that meets a commit record between the beginning
 * of a run and the next anchor knows that the server ran without pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "replication/syncrep.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

#include "base/shared.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/position/anchor.h"
#include "notify/relay/relay.h"
#include "notify/wal/wal_origin.h"

/*
 * The anchor that this process has written but not published yet, and the end of the anchor's record.  pending_end 0:
 * there is no such anchor.
 */
static HeraldAnchor pending;
static XLogRecPtr pending_end;

static bool is_due(void);
static bool is_far(XLogRecPtr last);
static XLogRecPtr last_published(void);
static void log_anchor(void);
static void insert(void);
static bool is_safe(XLogRecPtr end);
static void publish(HeraldAnchor anchor);
static void thin_out(HeraldAnchors *anchors);


void
herald_anchor_keep_up(void)
{
	if (pending_end == InvalidXLogRecPtr && is_due())
		insert();
	if (pending_end != InvalidXLogRecPtr && is_safe(pending_end))
	{
		publish(pending);
		pending_end = InvalidXLogRecPtr;
	}
}

void
herald_anchor_ensure(void)
{
	if (atomic_load_explicit(&herald_control->anchors.count, memory_order_acquire) > 0 ||
		RecoveryInProgress() || herald_relay_is_active())
		return;
	herald_anchor_write();
}

/*
 * In recovery no anchor is needed, since the server writes no commit records.  While the relay is active, the anchor is
 * written, but not published.
 */
void
herald_anchor_announce_run(void)
{
	if (RecoveryInProgress())
		return;
	if (herald_relay_is_active())
		log_anchor();
	else
		herald_anchor_ensure();
	pending_end = InvalidXLogRecPtr;
}

void
herald_anchor_precede(void)
{
	herald_anchor_ensure();
	atomic_store(&herald_control->logs, 1);
}

void
herald_anchor_write(void)
{
	insert();
	publish(pending);
	pending_end = InvalidXLogRecPtr;
}

bool
herald_anchor_distance(uint64 *bytes)
{
	XLogRecPtr	last;

	if (RecoveryInProgress())
		return false;
	last = last_published();
	*bytes = GetXLogInsertRecPtr() - last;
	return true;
}

static bool
is_due(void)
{
	XLogRecPtr	last;

	if (RecoveryInProgress() || herald_relay_is_active())
		return false;
	last = last_published();
	if (last == InvalidXLogRecPtr)
		return true;
	if (atomic_exchange(&herald_control->wants_anchor, 0) != 0)
		return true;
	return is_far(last);
}

/*
 * Returns true if the WAL has entered another segment since the anchor at `last`: the anchor's segment may soon be
 * removed, and a reader that begins at this anchor has much WAL to read.  Also returns true after each checkpoint: the
 * relay of a standby begins to read at a checkpoint, and the standby cannot have listeners before the relay has met a
 * message, for example an anchor.  Anchors are unimportant records, so an idle server makes no checkpoint because of
 * them.
 */
static bool
is_far(XLogRecPtr last)
{
	return last / wal_segment_size != GetXLogInsertRecPtr() / wal_segment_size || GetRedoRecPtr() > last;
}

/* Returns the place in the WAL of the last anchor that this run has published; InvalidXLogRecPtr: there is none. */
static XLogRecPtr
last_published(void)
{
	HeraldAnchors *anchors = &herald_control->anchors;
	XLogRecPtr	last = InvalidXLogRecPtr;

	LWLockAcquire(anchors->lock, LW_SHARED);
	if (anchors->count > 0)
		last = anchors->items[anchors->count - 1].at.wal;
	LWLockRelease(anchors->lock);
	return last;
}

static void
log_anchor(void)
{
	char		text[HERALD_WAL_ANCHOR_MAX];

	pending.at.run = herald_control->server_run;
	pending_end = herald_wal_origin_log_unimportant(text, herald_wal_write_anchor(text, pending.at.run));
	pending.at.wal = ProcLastRecPtr;

	/*
	 * [X4] Set the flag after the insertion, so that a session that sees the
	 * flag set writes its commit record after the anchor.
	 */
	atomic_store_explicit(&herald_control->run_is_announced, 1, memory_order_release);
	HERALD_STOP_POINT("anchor-written");
}

static void
insert(void)
{
	HeraldReached relayed = {0};

	log_anchor();
	pending.place = atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);
	if (atomic_load(&herald_control->anchors.count) == 0 && atomic_load(&herald_control->logs) == 0)
		pending.place = herald_relay_reached(&relayed) ? relayed.place : 0;
	XLogFlush(pending_end);
}

/*
 * Returns true if the synchronous standbys have flushed the anchor, whose record ends at `end`, or if the anchor need
 * not wait for them.  The first anchor of a run need not wait.  A later anchor need not wait while fewer standbys are
 * connected than commits wait for: then no commit that waits for standbys can succeed, and commits that do not wait are
 * no safer than the anchor.
 */
static bool
is_safe(XLogRecPtr end)
{
	SyncRepStandbyData *standbys;
	int			count;

	if (atomic_load(&herald_control->anchors.count) == 0 || SyncRepConfig == NULL ||
		WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH] >= end)
		return true;
	count = SyncRepGetCandidateStandbys(&standbys);
	pfree(standbys);
	return count < SyncRepConfig->num_sync;
}

/* Publish an anchor, unless another process has published a later one.  So the anchors are in the order of the WAL. */
static void
publish(HeraldAnchor anchor)
{
	HeraldAnchors *anchors = &herald_control->anchors;

	LWLockAcquire(anchors->lock, LW_EXCLUSIVE);
	if (anchors->count == 0 || anchors->items[anchors->count - 1].at.wal < anchor.at.wal)
	{
		if (anchors->count == HERALD_ANCHORS)
			thin_out(anchors);
		anchors->items[anchors->count] = anchor;
		atomic_fetch_add(&anchors->count, 1);
	}
	LWLockRelease(anchors->lock);
}

static void
thin_out(HeraldAnchors *anchors)
{
	for (size_t i = 1; i <= HERALD_ANCHORS / 2; i++)
		anchors->items[i] = anchors->items[2 * i - 1];
	anchors->count = HERALD_ANCHORS / 2 + 1;
}

bool
herald_anchor_latest(HeraldPosition not_after, HeraldWalAnchor *anchor)
{
	HeraldAnchors *anchors = &herald_control->anchors;
	bool		found = false;

	LWLockAcquire(anchors->lock, LW_SHARED);
	for (uint32 i = anchors->count; i-- > 0 && !found;)
		if (anchors->items[i].place <= not_after)
		{
			*anchor = anchors->items[i].at;
			found = true;
		}
	LWLockRelease(anchors->lock);
	return found;
}
