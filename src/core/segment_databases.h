/*-------------------------------------------------------------------------
 *
 * segment_databases.h
 *	  Of which databases the batches in a segment are.
 *
 * A reader passes over a segment that has nothing of its database, without a look
 * at its bytes: whatever others send in their databases, and however far behind
 * it is, it copies only what can be for it.
 *
 * The dispatcher notes each batch before it publishes it.  A database is one of 32
 * bits; others may have the same one, and then their segments are read for nothing.
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
 * is published.  True as well if it is not known any more.
 */
extern bool herald_segment_may_have(HeraldQueue *queue, HeraldPosition position, uint32_t database);

#endif							/* HERALD_SEGMENT_DATABASES_H */
