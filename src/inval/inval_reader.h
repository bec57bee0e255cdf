/*-------------------------------------------------------------------------
 *
 * inval_reader.h
 *	  This backend as a reader of invalidations.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVAL_READER_H
#define HERALD_INVAL_READER_H

#include "postgres.h"

#include "utils/snapshot.h"

#include "core/inval_queue.h"

/*
 * Read all invalidations in the queue.  To be called before each use of a cached value, after
 * taking the snapshot for that use.  The first call joins the queue, for which a transaction
 * must be open.
 */
extern void herald_inval_reader_accept(void);

/*
 * May a value be kept that was or will be computed with this snapshot?  Not if a transaction
 * whose change the snapshot does not see has invalidated it, as far as the queue has been
 * read; and not if the current transaction has.
 */
extern bool herald_inval_reader_may_keep(uint32 cache, uint32 key, Snapshot snapshot);

#endif							/* HERALD_INVAL_READER_H */
