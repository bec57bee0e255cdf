/*-------------------------------------------------------------------------
 *
 * anchor.c
 *	  Anchors: places in the WAL from which a reader can begin.
 *
 * An anchor is a message in the WAL that names the run of the server.  A reader that finds the
 * anchor at the place that a token names knows that it reads the WAL of that run.
 *
 * An anchor at `wal` is published together with a place in the queue, `place`.  A batch at or
 * after `place` has the last part of its message after `wal`, and its commit record even later.
 * The reason is that the head of the queue is read after the anchor was inserted.  The insertion
 * gives each record its place in the WAL under a spinlock.  Assume that the last part of a batch
 * is earlier than the anchor.  Then the batch's sender had that spinlock first, and before that
 * had moved the head beyond its batch; so the head that is read here is beyond the batch.  (The
 * other parts are written before the reservation, and may be earlier than the anchor: the last
 * part says where the first part begins.)
 *
 * The first anchor is usually inserted after the relay has ended, and earlier than this run's first message.
 * Then its `place` is where the relay has ended, or 0 without a relay, since between there and the head
 * no logged notification was sent, and no setting was changed.  A process announces a message (`logs`)
 * before it writes the last part (herald_anchor_precede()), and the announcement is read here after the anchor
 * was inserted: by the argument above, the last part of a message not announced by then is after the anchor.
 *
 * Sessions that lag need an older anchor, so several anchors are kept.  When there is no room
 * for another, every second anchor is dropped, but neither the first of this run nor the last.
 *
 * An anchor is published when it cannot be lost any more, that is when it is on the disk and on the
 * synchronous standbys, if there are any.  Otherwise a failover could lose a client's anchor without
 * losing anything that the client has received.  The first anchor does not wait for the standbys.
 *
 * [X4] A server may run for a while without pg_herald, and commit notifications that are not logged.  So the WAL
 * has an anchor between the beginning of a run (a shutdown checkpoint or an end of recovery) and the run's
 * first commit record: each session looks at one word in shared memory before it commits, and writes an anchor if
 * the word says that there is none.  A reader that meets a commit record between a beginning and an anchor knows
 * that the server ran without pg_herald.
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

/* The anchor that this process has written and not published yet, and the end of its record; 0: none. */
static HeraldAnchor pending;
static XLogRecPtr pending_end;

static bool is_due(void);
static bool is_far(XLogRecPtr last);
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

/* In recovery there are no commits.  While the relay is still at work, the anchor is written, but not published. */
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

static bool
is_due(void)
{
	HeraldAnchors *anchors = &herald_control->anchors;
	XLogRecPtr	last = InvalidXLogRecPtr;

	if (RecoveryInProgress() || herald_relay_is_active())
		return false;

	LWLockAcquire(anchors->lock, LW_SHARED);
	if (anchors->count > 0)
		last = anchors->items[anchors->count - 1].at.wal;
	LWLockRelease(anchors->lock);

	if (last == InvalidXLogRecPtr)
		return true;
	if (atomic_exchange(&herald_control->wants_anchor, 0) != 0)
		return true;
	return is_far(last);
}

/*
 * True if the last anchor is in an earlier segment of the WAL: this segment may be removed soon, and a reader
 * would have much WAL to read.  True also after each checkpoint, since a standby begins to read there, and has no
 * listeners before it has met an anchor.  Anchors are unimportant records, so an idle server makes no checkpoint
 * for them.
 */
static bool
is_far(XLogRecPtr last)
{
	return last / wal_segment_size != GetXLogInsertRecPtr() / wal_segment_size || GetRedoRecPtr() > last;
}

static void
log_anchor(void)
{
	char		text[HERALD_WAL_ANCHOR_MAX];

	pending.at.run = herald_control->server_run;
	pending_end = herald_wal_origin_log_unimportant(text, herald_wal_write_anchor(text, pending.at.run));
	pending.at.wal = ProcLastRecPtr;

	/*
	 * [X4] Set this after the insertion: then a session that sees it set
	 * writes its commit record after the anchor.
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
 * Have the synchronous standbys flushed the anchor?  True also if fewer standbys are there than commits
 * wait for: then no commit that waits can succeed, and other commits are no safer than the anchor.
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

/* Keeps the anchors in the order of the WAL: drops the anchor if another process has published a later one. */
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
