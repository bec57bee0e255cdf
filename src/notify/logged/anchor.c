/*-------------------------------------------------------------------------
 *
 * anchor.c
 *	  Anchors: places in the WAL from which a reader can begin.
 *
 * An anchor is a message in the WAL that names the run of the server.  A reader that finds it
 * where a token says knows that it reads the WAL of that run.
 *
 * An anchor at `wal` is published together with a position of the queue, `place`: a batch at or
 * after `place` has the last part of its message beyond `wal`, and its commit record even
 * further.  This holds because the head of the queue is read after the anchor was inserted.  The
 * insertion gives each record its place in the WAL under a spinlock.  Assume that the last part
 * of a batch is before the anchor.  Then its sender had that spinlock first; before that it had
 * moved the head beyond its batch; so the head that is read here is beyond the batch.
 * (Other parts are written before the reservation, and may be before the anchor: the last part
 * says where the first one begins.)
 *
 * Sessions that lag need an older anchor, so several are kept.  When there is no room for
 * another one, every second one is dropped: the first of this run always stays.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "storage/spin.h"

#include "base/shared.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/logged/anchor.h"
#include "notify/logged/wal_origin.h"

/* The next anchor in the same segment of the WAL has at least this distance, in bytes. */
#define DISTANCE_MIN		8192

static bool is_far(XLogRecPtr last);
static void publish(HeraldAnchor anchor);
static void thin_out(HeraldAnchors *anchors);


bool
herald_anchor_due(void)
{
	HeraldAnchors *anchors = &herald_control->anchors;
	XLogRecPtr	last = InvalidXLogRecPtr;

	if (RecoveryInProgress())
		return false;

	SpinLockAcquire(&anchors->lock);
	if (anchors->count > 0)
		last = anchors->items[anchors->count - 1].wal;
	SpinLockRelease(&anchors->lock);

	if (last == InvalidXLogRecPtr)
		return true;
	return atomic_load_explicit(&herald_control->logs, memory_order_relaxed) != 0 && is_far(last);
}

/*
 * The WAL of the last anchor may be removed soon, or a reader would have to read much of it.  If
 * nothing but anchors, and what an idle server writes, has come since then, the old anchor is as
 * good as a new one.
 */
static bool
is_far(XLogRecPtr last)
{
	XLogRecPtr	end = GetXLogInsertRecPtr();

	return (last / wal_segment_size != end / wal_segment_size ||
			(GetRedoRecPtr() > last && end - last >= DISTANCE_MIN)) &&
		GetLastImportantRecPtr() > last;
}

void
herald_anchor_write(void)
{
	HeraldAnchor anchor = {.run = herald_control->server_run};
	char		text[HERALD_WAL_ANCHOR_MAX];
	XLogRecPtr	end;

	end = herald_wal_origin_log_unimportant(text, herald_wal_write_anchor(text, anchor.run));
	anchor.wal = ProcLastRecPtr;
	HERALD_STOP_POINT("anchor-written");
	anchor.place = atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);

	/* A token must not name an anchor that a crash can take away. */
	XLogFlush(end);
	publish(anchor);
}

/* In the order of the WAL.  Another process may have published a later one meanwhile. */
static void
publish(HeraldAnchor anchor)
{
	HeraldAnchors *anchors = &herald_control->anchors;

	SpinLockAcquire(&anchors->lock);
	if (anchors->count == 0 || anchors->items[anchors->count - 1].wal < anchor.wal)
	{
		if (anchors->count == HERALD_ANCHORS)
			thin_out(anchors);
		anchors->items[anchors->count++] = anchor;
	}
	SpinLockRelease(&anchors->lock);
}

static void
thin_out(HeraldAnchors *anchors)
{
	for (uint32 i = 0; i < HERALD_ANCHORS / 2; i++)
		anchors->items[i] = anchors->items[i * 2];
	anchors->count = HERALD_ANCHORS / 2;
}

bool
herald_anchor_latest(HeraldPosition not_after, XLogRecPtr *wal, uint64 *run)
{
	HeraldAnchors *anchors = &herald_control->anchors;
	bool		found = false;

	SpinLockAcquire(&anchors->lock);
	for (uint32 i = anchors->count; i-- > 0 && !found;)
		if (anchors->items[i].place <= not_after)
		{
			*wal = anchors->items[i].wal;
			*run = anchors->items[i].run;
			found = true;
		}
	SpinLockRelease(&anchors->lock);
	return found;
}
