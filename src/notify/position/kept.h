/*-------------------------------------------------------------------------
 *
 * kept.h
 *	  The part of the queue that can still be read: from which place and time on.
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

/* The reason why the queue no longer has this position. */
extern HeraldGone herald_kept_why_gone(HeraldPosition position);

/* Bytes of the queue that can still be read, in memory and in files. */
extern uint64 herald_kept_bytes(void);

/* The time of the first commit that can still be read.  False: there is none, or its time is not known. */
extern bool herald_kept_begin(TimestampTz *since);

/*
 * The time of the first commit at or after a position where a batch begins.  False: there is
 * none, or its time is not known.
 */
extern bool herald_kept_since(HeraldPosition position, TimestampTz *since);

#endif							/* HERALD_KEPT_H */
