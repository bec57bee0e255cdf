/*-------------------------------------------------------------------------
 *
 * signal.h
 *	  The one place from which backends are signalled.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SIGNAL_H
#define HERALD_SIGNAL_H

#include "postgres.h"

/*
 * Tell the listener in this slot that it is its turn to read.  False: it waits for
 * something else than its client just now.  Never fails.
 * With no lock held.  (A HeraldSendSignal; arg is not used.)
 */
extern bool herald_signal_notifications(uint32 slot, void *arg);

/*
 * Tell the backend in this slot something else than notifications: a bit of
 * HERALD_REASONS_CATCH_UP.  False: nobody there attends to such reasons.
 * Never fails.  With no lock held.
 */
extern bool herald_signal_reason(uint32 slot, uint32 reason);

/*
 * Let this very backend read before it next tells its client that it is ready
 * for a query.
 */
extern void herald_signal_self(void);

#endif							/* HERALD_SIGNAL_H */
