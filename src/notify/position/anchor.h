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
 * Write an anchor if one is due, and publish it when it cannot be lost any more.  One is due soon
 * after the start or a promotion; after a setting has changed; and if notifications are logged, in
 * each segment of the WAL and after each checkpoint.  By the housekeeper, each second.
 */
extern void herald_anchor_keep_up(void);

/*
 * Before each commit record of this server, in whatever session: [X4] the WAL has an anchor of this
 * run before it.
 */
extern void herald_anchor_announce_run(void);

static inline void
herald_run_announce(void)
{
	if (unlikely(atomic_load_explicit(&herald_control->run_is_announced, memory_order_acquire) == 0))
		herald_anchor_announce_run();
}

/*
 * Write the first anchor of this run, unless there is one, or this is a standby.  Called by a session that
 * will ask for positions.
 */
extern void herald_anchor_ensure(void);

/* The same, called by a transaction that will write a message, before it reserves its batch. */
extern void herald_anchor_precede(void);

/* Write an anchor now, and publish it.  Not on a standby. */
extern void herald_anchor_write(void);

/*
 * Find the latest anchor for a session that has received everything below this position of the
 * queue.  All other logged notifications have the last part of their message, and their commit
 * record, beyond that place in the WAL.  False: there is none.
 */
extern bool herald_anchor_latest(HeraldPosition not_after, HeraldWalAnchor *anchor);

#endif							/* HERALD_ANCHOR_H */
