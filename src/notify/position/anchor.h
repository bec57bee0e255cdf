/*-------------------------------------------------------------------------
 *
 * anchor.h
 *	  Anchors: places in the WAL from which a reader can begin to read.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ANCHOR_H
#define HERALD_ANCHOR_H

#include "postgres.h"

#include "access/xlogdefs.h"

#include "base/shared.h"
#include "core/queue_layout.h"

/*
 * Write an anchor if one is due.  If this process has written an anchor that can no longer be lost, publish it.  An
 * anchor is due after the start of the server, after a promotion, after a change of a setting, when the WAL has entered
 * another segment, and after each checkpoint; never on a standby, nor while the relay is active.  Called by the
 * housekeeper each second.
 */
extern void herald_anchor_keep_up(void);

/*
 * [X4] Write an anchor of this run if the WAL has none yet.  Called only by herald_run_announce(), which each session
 * calls before each commit record, and only while `run_is_announced` is not set.
 */
extern void herald_anchor_announce_run(void);

static inline void
herald_run_announce(void)
{
	if (unlikely(atomic_load_explicit(&herald_control->run_is_announced, memory_order_acquire) == 0))
		herald_anchor_announce_run();
}

/*
 * Write and publish the first anchor of this run.  Does nothing on a standby, or while the relay is active, or after an
 * anchor was published.  Called before a session uses positions, and by herald_anchor_announce_run() and
 * herald_anchor_precede().
 */
extern void herald_anchor_ensure(void);

/*
 * Do the same as herald_anchor_ensure(), and then set `logs`, which shows that this run writes messages.  Called before
 * a setting, or the last part of a message, is written into the WAL.
 */
extern void herald_anchor_precede(void);

/* Write an anchor, and publish it at once.  Must not be called on a standby. */
extern void herald_anchor_write(void);

/*
 * Set *bytes to the number of bytes of WAL since the last published anchor, or since LSN 0 if this run has published no
 * anchor.  Returns false on a standby.
 */
extern bool herald_anchor_distance(uint64 *bytes);

/*
 * Find the latest published anchor whose place in the queue is `not_after` or earlier.  If a batch at `not_after` or
 * later has logged notifications, the last part of its message and its commit record are after this anchor in the WAL.
 * Returns false if there is no such anchor.
 */
extern bool herald_anchor_latest(HeraldPosition not_after, HeraldWalAnchor *anchor);

#endif							/* HERALD_ANCHOR_H */
