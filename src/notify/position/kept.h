/*-------------------------------------------------------------------------
 *
 * kept.h
 *	  What of the queue can still be read: from where on, and since when.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_KEPT_H
#define HERALD_KEPT_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/queue_layout.h"

/* Why something cannot be read any more. */
typedef enum HeraldGone
{
	HERALD_GONE_NOTHING,		/* it can be */
	HERALD_GONE_RUN,			/* it is of another run of the server */
	HERALD_GONE_DATABASE,		/* it is of another database, perhaps one with the same oid, or another cluster */
	HERALD_GONE_PAST_QUEUE,		/* some of it was never in our queue */
	HERALD_GONE_BY_SIZE,		/* herald.retain_size, or that file of a large transaction */
	HERALD_GONE_FOR_ROOM,		/* the queue was full, or the disk */
	HERALD_GONE_WAL,			/* the WAL after it was removed, or is too much */
	HERALD_GONE_RELAY,			/* the relay of this standby is late */
	HERALD_GONE_CUT,			/* the server has not, or not yet, what was received elsewhere */
	HERALD_GONE_HISTORY,		/* the server's WAL does not have what was received, or does not show how much of it was */
	HERALD_GONE_UNLOGGED,		/* some of it is not in the WAL */
	HERALD_GONE_DAMAGED			/* the queue is switched off */
} HeraldGone;

/* Why there is nothing at this position. */
extern HeraldGone herald_kept_why_gone(HeraldPosition position);

/* Bytes that can still be read, in memory and in files. */
extern uint64 herald_kept_bytes(void);

/* The time of the first commit in what can be read.  False: it is not known, or there is none. */
extern bool herald_kept_begin(TimestampTz *since);

/*
 * The time of the first commit from a position on, where a batch begins.  False: there is
 * none, or it is not there any more.
 */
extern bool herald_kept_since(HeraldPosition position, TimestampTz *since);

#endif							/* HERALD_KEPT_H */
