/*-------------------------------------------------------------------------
 *
 * kept.h
 *	  The part of the queue that can still be read: its size, and the time of its first commit.
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

/*
 * Returns why the queue cannot be read from this position on, or cannot be kept for a listener from there on.  Called
 * when the attempt has failed, or would fail.
 */
extern HeraldGone herald_kept_why_gone(HeraldPosition position);

/* Returns the number of bytes of the queue that can still be read, including files of large transactions. */
extern uint64 herald_kept_bytes(void);

/*
 * Get the time of the first commit that can still be read.  Returns false if there is no such commit, or if its time
 * was not found.
 */
extern bool herald_kept_begin(TimestampTz *since);

/*
 * Get the time of the first commit at `position` or later.  A batch must begin at `position`.  Returns false if there
 * is no such commit, or if its time was not found.
 */
extern bool herald_kept_since(HeraldPosition position, TimestampTz *since);

#endif							/* HERALD_KEPT_H */
