/*-------------------------------------------------------------------------
 *
 * reasons.h
 *	  Coalesced signals: one mask of reasons per backend.
 *
 * Whoever wants a backend's attention sets its bit, and sends a signal only if
 * the mask was empty: otherwise a signal is already under way, and its
 * receiver, taking the whole mask at once, will find the new bit too.
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

#define HERALD_REASON_NOTIFICATIONS		(UINT32_C(1) << 0)	/* your turn to read */

/* Add a reason.  True: the mask was empty, so the caller must send a signal. */
static inline bool
herald_reasons_add(HeraldReasons *reasons, uint32_t reason)
{
	/* [S1] pairs with the exchange below */
	return atomic_fetch_or_explicit(reasons, reason, memory_order_acq_rel) == 0;
}

/*
 * Take all reasons.  By the receiver, before it acts on them: what is added
 * from now on sends a signal of its own.
 */
static inline uint32_t
herald_reasons_take(HeraldReasons *reasons)
{
	/* Most statements find nothing; do not write to the line for that. */
	if (atomic_load_explicit(reasons, memory_order_relaxed) == 0)
		return 0;

	/* [S1] pairs with the fetch-or above */
	return atomic_exchange_explicit(reasons, 0, memory_order_acq_rel);
}

#endif							/* HERALD_REASONS_H */
