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

#include "core/queue_layout.h"

/*
 * Should an anchor be written?  Never during recovery.  Once soon after it, and after that only
 * if notifications are logged and other WAL has been written.
 */
extern bool herald_anchor_due(void);

/* Write an anchor, flush it, and publish it.  Not during recovery.  Nothing of ours may be locked. */
extern void herald_anchor_write(void);

/*
 * Find the latest anchor for a session that has received everything below this position of the
 * queue.  All other logged notifications have the last part of their message, and their commit
 * record, beyond that place in the WAL.  False: there is none.
 */
extern bool herald_anchor_latest(HeraldPosition not_after, XLogRecPtr *wal, uint64 *run);

#endif							/* HERALD_ANCHOR_H */
