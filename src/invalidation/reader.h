/*-------------------------------------------------------------------------
 *
 * reader.h
 *	  Invalidations, as this backend hears of them.
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
 * Forget what is cached under this key; HERALD_KEY_ALL: all of that cache; and
 * if cache is HERALD_KEY_ALL as well: everything.  Must not throw, nor read
 * catalogs: a commit may be under way.
 */
typedef void (*HeraldForget) (uint32 cache, uint32 key, void *arg);

/* From now on this is called for each invalidation, for as long as the backend lives. */
extern void herald_invalidation_subscribe(HeraldForget forget, void *arg);

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

/* Forget it here, now. */
extern void herald_invalidation_apply(uint32 cache, uint32 key);

/* Signal who is to catch up; HERALD_INVAL_NOBODY: nothing to do.  With no lock held. */
extern void herald_invalidation_wake(int32 slot);

/* The watchdog has a look at who is to catch up.  True: somebody is. */
extern bool herald_invalidation_look(void);

#endif							/* HERALD_INVALIDATION_READER_H */
