/*-------------------------------------------------------------------------
 *
 * anchor.h
 *	  Anchors: places in the WAL from which a reader can begin.
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
 * Write an anchor if one is due, and publish it when it cannot be lost any more.  An anchor is due
 * soon after the start or a promotion, after a setting has changed, in each segment of the WAL,
 * and after each checkpoint.  Called by the housekeeper, each second.
 */
extern void herald_anchor_keep_up(void);

/*
 * [X4] Make sure that the WAL has an anchor of this run.  Each session calls herald_run_announce()
 * before each commit record, and that calls this function until there is such an anchor.
 */
extern void herald_anchor_announce_run(void);

static inline void
herald_run_announce(void)
{
	if (unlikely(atomic_load_explicit(&herald_control->run_is_announced, memory_order_acquire) == 0))
		herald_anchor_announce_run();
}

/*
 * Write and publish the first anchor of this run, unless one is published, this server is a standby, or
 * its relay is still at work.  Called by a session that will ask for positions.
 */
extern void herald_anchor_ensure(void);

/* As herald_anchor_ensure(), and announce a message.  Called before its last part, or a setting, is written. */
extern void herald_anchor_precede(void);

/* Write an anchor now, and publish it.  Not to be called on a standby. */
extern void herald_anchor_write(void);

/*
 * Find the latest anchor for a session that has received everything below this place in the
 * queue.  All other logged notifications have the last part of their message, and their commit
 * record, after the anchor in the WAL.  False: there is no such anchor.
 */
extern bool herald_anchor_latest(HeraldPosition not_after, HeraldWalAnchor *anchor);

#endif							/* HERALD_ANCHOR_H */
