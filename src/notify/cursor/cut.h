/*-------------------------------------------------------------------------
 *
 * cut.h
 *	  The cut: where a reader changes from the WAL to this server's queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CUT_H
#define HERALD_CUT_H

#include "postgres.h"

#include "access/xlogdefs.h"

#include "core/queue_layout.h"
#include "core/receipt.h"
#include "notify/position/gone.h"

/*
 * Each committed batch before `place` in this server's queue has its commit record before `wal`.  Batches at `place`
 * or later are delivered from the queue, even if their commit records are before `wal`.
 */
typedef struct HeraldCut
{
	HeraldPosition place;
	XLogRecPtr	wal;
	bool		in_order;		/* the queue before `place` is in the order of
								 * the WAL */
	uint32		bypasses;		/* what herald_bypass_count() returned before
								 * `place` was loaded */
	uint64		settings;		/* what herald_channel_settings_version()
								 * returned before `place` was loaded */
} HeraldCut;

/*
 * Make a cut now, for a client with this receipt.  While the relay is active, wait until the relay has reached all
 * commits that the client has received or that are visible now; otherwise wait until the batches that are in the queue
 * now are settled.  Both waits are limited.  Returns HERALD_GONE_NOTHING, or the reason why the client cannot resume
 * now.  Called in a transaction; may throw.
 */
extern HeraldGone herald_cut_make(const HeraldReceipt *received, HeraldCut *cut);

#endif							/* HERALD_CUT_H */
