/*-------------------------------------------------------------------------
 *
 * catch_up.h
 *	  Makes one backend at a time catch up with invalidations.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CATCH_UP_H
#define HERALD_CATCH_UP_H

#include "postgres.h"

#include "api/pg_herald_api.h"
#include "core/inval_queue.h"

/* Called once, in _PG_init(). */
extern void herald_catch_up_init(const HeraldApi *api);

/* From now on this backend can be signalled, and then calls the function at a safe point. */
extern void herald_catch_up_handle(void (*catch_up) (void *arg));

/*
 * Signal the backend that has the turn; HERALD_INVAL_NOBODY: nothing to do.  With no lock
 * held.
 */
extern void herald_catch_up_wake(int32 slot);

#endif							/* HERALD_CATCH_UP_H */
