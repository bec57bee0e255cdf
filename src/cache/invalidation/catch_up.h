/*-------------------------------------------------------------------------
 *
 * catch_up.h
 *	  The turn to catch up with invalidations: one backend at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CATCH_UP_H
#define HERALD_CATCH_UP_H

#include "postgres.h"

#include "core/inval_queue.h"

/* Signal who is to catch up; HERALD_INVAL_NOBODY: nothing to do.  With no lock held. */
extern void herald_invalidation_wake(int32 slot);

/* The watchdog has a look at who is to catch up.  True: somebody is. */
extern bool herald_invalidation_look(void);

#endif							/* HERALD_CATCH_UP_H */
