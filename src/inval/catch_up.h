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

#include "core/inval_queue.h"

/*
 * Signal the backend that has the turn; HERALD_INVAL_NOBODY: nothing to do.  With no lock
 * held.
 */
extern void herald_catch_up_wake(int32 slot);

/* The watchdog checks the backend that has the turn.  True: there is one. */
extern bool herald_catch_up_look(void);

#endif							/* HERALD_CATCH_UP_H */
