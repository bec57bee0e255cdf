/*-------------------------------------------------------------------------
 *
 * signal.h
 *	  The only place from which backends are signalled.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SIGNAL_H
#define HERALD_SIGNAL_H

#include "postgres.h"

/*
 * Signal the listener in this slot that it has the turn to read.  False: it now waits for
 * something other than its client.  Never fails.  With no lock held.  (A HeraldSendSignal; arg
 * is not used.)
 */
extern bool herald_signal_notifications(uint32 slot, void *arg);

/*
 * Signal a listener that is idle, without a turn, unless it was signalled before and has not reacted: then it is in a
 * statement that no hook reports.  Its word is not changed: if it begins a transaction before it gets the signal, it must
 * not hold back the queue.  Returns true if it was signalled.  Never fails.
 */
extern bool herald_signal_idle(uint32 slot, uint64 word);

/*
 * Signal the backend in this slot for a reason other than notifications: a bit of
 * HERALD_REASONS_CATCH_UP.  False: the slot has no backend that handles such reasons.  Never
 * fails.  With no lock held.
 */
extern bool herald_signal_reason(uint32 slot, uint32 reason);

/* Make this backend read before it next sends ReadyForQuery to its client. */
extern void herald_signal_self(void);

#endif							/* HERALD_SIGNAL_H */
