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
 * Write an anchor if an anchor is due, and publish the anchor when it cannot be lost any more.  An anchor is due after
 * the start of the server, after a promotion, after a change of a setting, in each WAL segment, and after each
 * checkpoint.  Called by the housekeeper each second.
 */
extern void herald_anchor_keep_up(void);

/*
 * [X4] Make sure that the WAL has an anchor of this run.  Each session calls herald_run_announce() before each commit
 * record, and herald_run_announce() calls this function until the WAL has an anchor of this run.
 */
extern void herald_anchor_announce_run(void);

static inline void
herald_run_announce(void)
{
	if (unlikely(atomic_load_explicit(&herald_control->run_is_announced, memory_order_acquire) == 0))
		herald_anchor_announce_run();
}

/*
 * Write and publish the first anchor of this run.  Does nothing on a standby, or while the relay is active, or
 * after an anchor was published.  Called by a session that will ask for positions.
 */
extern void herald_anchor_ensure(void);

/*
 * Do the same as herald_anchor_ensure(), and then announce that this run writes messages.  Called before a setting or
 * the last part of a message is written.
 */
extern void herald_anchor_precede(void);

/* Write an anchor, and publish it at once.  Must not be called on a standby. */
extern void herald_anchor_write(void);

/*
 * *bytes receives the size of the WAL since the last published anchor.  Counts from the beginning of the WAL if this run
 * has published none.  Returns false on a standby.
 */
extern bool herald_anchor_distance(uint64 *bytes);

/*
 * Find the latest published anchor whose place in the queue is `not_after` or earlier.  The logged notifications at
 * `not_after` or later have the last part of their message, and their commit record, after this anchor in the WAL.
 * Returns false if there is no such anchor.
 */
extern bool herald_anchor_latest(HeraldPosition not_after, HeraldWalAnchor *anchor);

#endif							/* HERALD_ANCHOR_H */
