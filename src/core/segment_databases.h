/*-------------------------------------------------------------------------
 *
 * segment_databases.h
 *	  Records which databases have batches in a segment.
 *
 * A reader skips a segment that has no batch of its database, without reading the segment's
 * bytes.  So a listener that is far behind need not read the messages of other databases.
 *
 * The dispatcher records each batch before it publishes it.  A database is one of 32 bits.
 * Databases may share a bit; then some segments are read unnecessarily.  So are segments
 * before the latest HERALD_SEGMENTS_NOTED.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SEGMENT_DATABASES_H
#define HERALD_SEGMENT_DATABASES_H

#include "queue.h"

/*
 * Record that a batch of this database is at this position.  By the dispatcher, before it
 * publishes the batch.
 */
extern void herald_segment_note(HeraldQueue *queue, HeraldPosition position, uint32_t database);

/* The same for an aborted batch, which no listener reads. */
extern void herald_segment_note_empty(HeraldQueue *queue, HeraldPosition position);

/*
 * Can the segment of this position have a published batch of this database?  By any process
 * that knows from `dispatched` or `settled` that the position is published.  Also true if the
 * record has been overwritten by a later segment's.
 */
extern bool herald_segment_may_have(HeraldQueue *queue, HeraldPosition position, uint32_t database);

#endif							/* HERALD_SEGMENT_DATABASES_H */
