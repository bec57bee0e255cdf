/*-------------------------------------------------------------------------
 *
 * invalidate.h
 *	  The invalidations of the current transaction, until they are in the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVALIDATE_H
#define HERALD_INVALIDATE_H

#include "postgres.h"

#include "core/inval_queue.h"

/* The names that caches and keys go by in the queue: never HERALD_KEY_ALL. */
extern uint32 herald_invalidate_hash(const void *name, size_t length);
extern uint32 herald_invalidate_hash_text(const text *name);

/*
 * When this transaction commits, what is cached under this key is invalid for
 * every backend that sees the commit; for this one at once.  key: a hash, or
 * HERALD_KEY_ALL.  Inside a transaction that may write; gives it an id.  Throws
 * in recovery, in parallel mode, and when out of memory.
 */
extern void herald_invalidate(uint32 cache, uint32 key);

/* Has this transaction invalidated it, so far? */
extern bool herald_invalidate_is_pending(uint32 cache, uint32 key);

/* Has it invalidated anything? */
extern bool herald_invalidate_any_pending(void);

/*
 * Put them in the queue.  Before the commit record is written, or that of PREPARE
 * TRANSACTION, after all that waits.  From here on what is invalidated goes into the queue directly.
 */
extern void herald_invalidate_publish(void);

/* The current subtransaction was committed, or rolled back. */
extern void herald_invalidate_subcommit(void);
extern void herald_invalidate_subabort(void);

/* The transaction is over, and that is visible, either way; or it is prepared.  Never fails. */
extern void herald_invalidate_end(void);

/* Then: forget what it has invalidated, which may be much.  Never fails. */
extern void herald_invalidate_reset(void);

#endif							/* HERALD_INVALIDATE_H */
