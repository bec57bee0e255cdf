/*-------------------------------------------------------------------------
 *
 * segment_databases.h
 *	  Which databases a segment has batches of.
 *
 * A reader passes over a segment that has nothing of its database, without a look
 * at its bytes: a listener that is far behind does not have to read what others have
 * sent in their databases.
 *
 * The dispatcher notes each batch before it publishes it.  A database is one of 32
 * bits; others may have the same one, and then their segments are read for nothing.
 * So are those before the latest HERALD_SEGMENTS_NOTED.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SEGMENT_DATABASES_H
#define HERALD_SEGMENT_DATABASES_H

#include "queue.h"

/*
 * A batch of that database is at this position.  By the dispatcher, before it publishes
 * the batch.
 */
extern void herald_segment_note(HeraldQueue *queue, HeraldPosition position, uint32_t database);

/* The same for a batch that nobody is to read. */
extern void herald_segment_note_empty(HeraldQueue *queue, HeraldPosition position);

/*
 * Can there be a published batch of that database in the segment in which this position
 * lies?  By any process that knows, from `dispatched` or `settled`, that what it asks for
 * is published.  True as well if a later segment has taken the place of its note.
 */
extern bool herald_segment_may_have(HeraldQueue *queue, HeraldPosition position, uint32_t database);

#endif							/* HERALD_SEGMENT_DATABASES_H */
