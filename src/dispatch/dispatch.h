/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  From finished batches to woken listeners.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DISPATCH_H
#define HERALD_DISPATCH_H

#include "postgres.h"

#include "core/log_layout.h"
#include "utils/timestamp.h"

/*
 * Dispatch what is finished and wake the first of those whom it concerns, unless
 * another process is at it.  Never fails.  To be called after a batch was
 * finished; the process must have attached the channel map, or else must know
 * that it has no batch.
 */
extern void herald_dispatch_run(void);

/*
 * The same after a commit, at that time: in calm times they are woken when the
 * client has its answer.
 */
extern void herald_dispatch_run_committed(TimestampTz committed_at);

/* Signal listeners of the wakeup set while there are turns.  Never fails. */
extern void herald_dispatch_pump(void);

/* The same by a listener after whom nobody has sent anything: more of them than under load. */
extern void herald_dispatch_pump_at_rest(void);

/*
 * Wait until whom it concerns has been marked for everything below this
 * position.  May throw
 * (interrupts are served).  By a backend that holds no locks of ours.
 */
extern void herald_dispatch_wait(HeraldPosition position);

/* The transaction was aborted, perhaps out of that wait.  Never fails. */
extern void herald_dispatch_cancel_wait(void);

#endif							/* HERALD_DISPATCH_H */
