/*-------------------------------------------------------------------------
 *
 * subscribers.h
 *	  The caches of this backend, which drop invalidated values.
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
 * Drop the values cached under this key; HERALD_KEY_ALL: the whole cache; if cache is
 * HERALD_KEY_ALL too: everything.  Must not throw or read catalogs: a commit may be in
 * progress.
 */
typedef void (*HeraldForget) (uint32 cache, uint32 key, void *arg);

/* Call the function for each invalidation from now on, until the backend exits. */
extern void herald_invalidation_subscribe(HeraldForget forget, void *arg);

/* Apply an invalidation to the caches of this backend, now. */
extern void herald_invalidation_apply(uint32 cache, uint32 key);

#endif							/* HERALD_SUBSCRIBERS_H */
