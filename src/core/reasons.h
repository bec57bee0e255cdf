/*-------------------------------------------------------------------------
 *
 * reasons.h
 *	  Coalesced signals: one mask of reasons per backend.
 *
 * A process that wants a backend's attention sets a bit, and sends a signal only if no bit was
 * set before: otherwise a signal is already on its way, and its receiver takes all bits at
 * once, so it finds the new one too.
 *
 * Notifications are announced by a different signal of the server than all other reasons,
 * because only that signal makes the server flush to the client.  So there are two groups of
 * reasons, one for each signal, and "all" means all of a group.
 *
 * After Joel Jacobson and Andreas Karlsson, "Optimize ProcSignal to avoid
 * redundant SIGUSR1 signals", pgsql-hackers, July 2025.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_REASONS_H
#define HERALD_REASONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint32_t HeraldReasons;

/* Your turn to read notifications. */
#define HERALD_REASON_NOTIFICATIONS		(UINT32_C(1) << 0)

/* From this bit on: reasons that other modules have registered (api/reason_names.c). */
#define HERALD_REASON_FIRST_OTHER		1
#define HERALD_REASONS_OTHER			31

/* Announced by the server's signal for notifications, and by its signal for invalidations. */
#define HERALD_REASONS_NOTIFY			HERALD_REASON_NOTIFICATIONS
#define HERALD_REASONS_CATCH_UP			(~HERALD_REASONS_NOTIFY)

/*
 * Add a reason.  True: no reason of this group was set, so the caller must send the group's
 * signal.
 */
static inline bool
herald_reasons_add(HeraldReasons *reasons, uint32_t reason, uint32_t group)
{
	/* [S1] pairs with herald_reasons_take() */
	return (atomic_fetch_or_explicit(reasons, reason, memory_order_acq_rel) & group) == 0;
}

/*
 * Take all reasons of a group.  By the receiver, before it acts on them: for a reason that is
 * added from now on, another signal is sent.
 */
static inline uint32_t
herald_reasons_take(HeraldReasons *reasons, uint32_t group)
{
	/* Most statements find no reason; do not write to the cache line then. */
	if ((atomic_load_explicit(reasons, memory_order_relaxed) & group) == 0)
		return 0;

	/* [S1] pairs with herald_reasons_add() */
	return atomic_fetch_and_explicit(reasons, ~group, memory_order_acq_rel) & group;
}

#endif							/* HERALD_REASONS_H */
