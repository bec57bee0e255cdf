/*-------------------------------------------------------------------------
 *
 * cut.h
 *	  Where a history ends, and the queue goes on.
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
#include "notify/position/token.h"

/*
 * Where a history ends and the queue goes on: the WAL up to `wal` has everything that has its place
 * before `place` in this server's queue, and whatever else was committed up to `wal` is for the queue.
 */
typedef struct HeraldCut
{
	HeraldPosition place;
	XLogRecPtr	wal;
	bool		in_order;		/* the queue before it has the order of the WAL */

	/* Noted by the caller before: how many transactions had bypassed the queue, and herald_channel_settings_version(). */
	uint32		bypasses;
	uint64		settings;
} HeraldCut;

/*
 * The cut of this moment, for a client with this token, into the first fields of *cut.  Waits for a
 * standby to replay what the client has received.  False: it does not come.  May throw.
 */
extern bool herald_cut_make(const HeraldToken *token, HeraldCut *cut);

/* Why the last one could not be made, in words. */
extern const char *herald_cut_reason(void);

#endif							/* HERALD_CUT_H */
