/*-------------------------------------------------------------------------
 *
 * reader.h
 *	  This backend as a reader of invalidations.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVALIDATION_READER_H
#define HERALD_INVALIDATION_READER_H

#include "postgres.h"

#include "utils/snapshot.h"

#include "core/inval_queue.h"

/*
 * Read all invalidations that are in the queue.  To be called before anything
 * that is cached is used, with the snapshot that it is used with taken before.
 * The first time it joins the queue, for which a transaction must be open.
 */
extern void herald_invalidation_accept(void);

/*
 * May a value be kept that was computed, or is going to be, with this snapshot?
 * Not if some transaction has invalidated it, as far as the queue has been
 * read, whose change the snapshot does not see; nor if the current one has.
 */
extern bool herald_invalidation_may_keep(uint32 cache, uint32 key, Snapshot snapshot);

#endif							/* HERALD_INVALIDATION_READER_H */
