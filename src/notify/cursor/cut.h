/*-------------------------------------------------------------------------
 *
 * cut.h
 *	  The cut: where reading the WAL ends, and this server's queue continues.
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
 * Each committed batch before `place` in this server's queue has its commit record before `wal`.
 * The other batches are delivered from the queue, even if their commit records are before `wal`, too.
 */
typedef struct HeraldCut
{
	HeraldPosition place;
	XLogRecPtr	wal;
	bool		in_order;		/* the queue before `place` is in the order of
								 * the WAL */
	uint32		bypasses;		/* herald_bypass_count() before the cut was
								 * made */
	uint64		settings;		/* herald_channel_settings_version() before
								 * the cut was made */
} HeraldCut;

/*
 * Make a cut now, for a client with this receipt.  Waits for a while: on a standby until what the client
 * has received is replayed, on a primary until the batches in the queue are settled.  Gone: the client
 * cannot resume from this cut.  In a transaction; may throw.
 */
extern HeraldGone herald_cut_make(const HeraldReceipt *received, HeraldCut *cut);

#endif							/* HERALD_CUT_H */
