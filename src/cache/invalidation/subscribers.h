/*-------------------------------------------------------------------------
 *
 * subscribers.h
 *	  The caches of this backend, which forget what is invalidated.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SUBSCRIBERS_H
#define HERALD_SUBSCRIBERS_H

#include "postgres.h"

#include "core/inval_queue.h"

/*
 * Forget what is cached under this key; HERALD_KEY_ALL: all of that cache; and
 * if cache is HERALD_KEY_ALL as well: everything.  Must not throw, nor read
 * catalogs: a commit may be under way.
 */
typedef void (*HeraldForget) (uint32 cache, uint32 key, void *arg);

/* From now on this is called for each invalidation, for as long as the backend lives. */
extern void herald_invalidation_subscribe(HeraldForget forget, void *arg);

/* Forget it here, now. */
extern void herald_invalidation_apply(uint32 cache, uint32 key);

#endif							/* HERALD_SUBSCRIBERS_H */
