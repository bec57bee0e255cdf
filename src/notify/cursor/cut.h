/*-------------------------------------------------------------------------
 *
 * cut.h
 *	  Where reading the WAL ends, and this server's queue continues.
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
 * Everything with a place before `place` in this server's queue has its commit record before `wal`;
 * other commits up to `wal` are delivered from the queue.
 */
typedef struct HeraldCut
{
	HeraldPosition place;
	XLogRecPtr	wal;
	bool		in_order;		/* the queue before it has the order of the
								 * WAL */
	uint32		bypasses;		/* herald_bypass_count() before the cut was
								 * made */
	uint64		settings;		/* herald_channel_settings_version() before
								 * the cut was made */
} HeraldCut;

/*
 * Make the cut of this moment, for a client that has received this.  In a transaction; waits for a standby
 * to replay that.  Gone: it does not come.  May throw.
 */
extern HeraldGone herald_cut_make(const HeraldReceipt *received, HeraldCut *cut);

#endif							/* HERALD_CUT_H */
