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
#include "notify/position/gone.h"

/* Why the queue has nothing left at this position. */
extern HeraldGone herald_kept_why_gone(HeraldPosition position);

/* Bytes that can still be read, in memory and in files. */
extern uint64 herald_kept_bytes(void);

/* The time of the first commit that can still be read.  False: not known, or there is none. */
extern bool herald_kept_begin(TimestampTz *since);

/*
 * The time of the first commit from a position on, where a batch begins.  False: there is
 * none, or it is not there any more.
 */
extern bool herald_kept_since(HeraldPosition position, TimestampTz *since);

#endif							/* HERALD_KEPT_H */
