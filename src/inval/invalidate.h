/*-------------------------------------------------------------------------
 *
 * invalidate.h
 *	  The current transaction's invalidations, until they are in the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVALIDATE_H
#define HERALD_INVALIDATE_H

#include "postgres.h"

#include "core/inval_queue.h"

/* The hashes that stand for caches and keys in the queue: never HERALD_KEY_ALL. */
extern uint32 herald_invalidate_hash(const void *name, size_t length);
extern uint32 herald_invalidate_hash_text(const text *name);

/*
 * Invalidate the values cached under this key: when this transaction commits, for every
 * backend that sees the commit; in this backend at once.  key: a hash, or HERALD_KEY_ALL.
 * Inside a transaction that may write; assigns an id to it.  Throws in recovery, in parallel
 * mode, and when out of memory.
 */
extern void herald_invalidate(uint32 cache, uint32 key);

/* Has this transaction invalidated this key so far? */
extern bool herald_invalidate_is_pending(uint32 cache, uint32 key);

/* Has this transaction invalidated any key? */
extern bool herald_invalidate_any_pending(void);

/*
 * Put the invalidations into the queue.  Before the record of the commit or of PREPARE
 * TRANSACTION is written.  Later invalidations go into the queue directly.
 */
extern void herald_invalidate_publish(void);

/* The current subtransaction was committed, or rolled back. */
extern void herald_invalidate_subcommit(void);
extern void herald_invalidate_subabort(void);

/* The transaction has ended, visibly, in either way, or it is prepared.  Never fails. */
extern void herald_invalidate_end(void);

#endif							/* HERALD_INVALIDATE_H */
