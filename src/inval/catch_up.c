/*-------------------------------------------------------------------------
 *
 * catch_up.c
 *	  Makes one backend at a time catch up with invalidations.
 *
 * One at a time, because a signal makes an idle backend run.  A backend that is in a transaction
 * runs anyway, and reads at its next statement or its commit, perhaps much later: it gets the
 * signal, and the turn goes on at once.  So the turn waits only for backends that were idle.  If
 * one of these does not move, because it is stopped in a debugger, or its transaction block has
 * failed, the next inserter that checks the readers takes the turn back (core/inval_queue.c).  The same
 * if one inserter finds more busy ones than BUSY_MAX, since its commit must not take long.
 *
 * Only inserters can overrun a reader, so no process has to look after the turn while nothing is
 * inserted.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lwlock.h"

#include "api/pg_herald_api.h"
#include "base/compat.h"
#include "core/stop_point.h"
#include "inval/cache_shared.h"
#include "inval/catch_up.h"

#define REASON	"pg_herald_cache catches up"

/* Busy backends that one call signals. */
#define BUSY_MAX	64

static const HeraldApi *herald;
static HeraldReason *reason;

static bool is_busy(const HeraldCacheUse *backend);
static int32 pass_on(int32 slot);


void
herald_catch_up_init(const HeraldApi *api)
{
	herald = api;
	reason = herald->reason_register(REASON, NULL, NULL);
}

void
herald_catch_up_handle(void (*catch_up) (void *arg))
{
	(void) herald->reason_register(REASON, catch_up, NULL);
}

void
herald_catch_up_wake(int32 slot)
{
	for (int n = 0; n < BUSY_MAX && slot != HERALD_INVAL_NOBODY; n++)
	{
		HeraldCacheUse *backend = &herald_cache_uses[slot];
		bool		was_busy;

		HERALD_HOLD_POINT("catch-up-handed-out");

		/* Before the signal, which begins a transaction in an idle backend. */
		was_busy = is_busy(backend);

		/* If the backend has exited meanwhile, it has handed the turn on. */
		(void) herald->reason_send(reason, atomic_load(&backend->pid));
		slot = was_busy ? pass_on(slot) : HERALD_INVAL_NOBODY;
	}
}

/* Is it in a transaction, or waits for something other than its client's next message? */
static bool
is_busy(const HeraldCacheUse *backend)
{
	int			process = atomic_load_explicit(&backend->process, memory_order_relaxed);

	return herald_proc_is_in_transaction(process) || herald_proc_waits_elsewhere(process, 0);
}

/* Returns the slot to signal next, or HERALD_INVAL_NOBODY. */
static int32
pass_on(int32 slot)
{
	int32		next = HERALD_INVAL_NOBODY;
	uint64		turn;

	LWLockAcquire(herald_cache_control->invalidation_lock, LW_EXCLUSIVE);
	turn = herald_inval_turn(herald_inval_queue);
	if ((uint32) turn == (uint32) slot + 1)
		next = herald_inval_rescue(herald_inval_queue, turn);
	LWLockRelease(herald_cache_control->invalidation_lock);
	return next;
}
