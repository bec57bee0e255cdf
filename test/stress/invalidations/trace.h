/*-------------------------------------------------------------------------
 *
 * trace.h
 *	  Checks every exchange of the turn, for the stress of the queue of invalidations.
 *
 * Included before everything else, after jitter.h.  Each change of the turn
 * is a compare-and-exchange: if each of them is a valid one, then there were
 * never two holders.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVALIDATIONS_TRACE_H
#define HERALD_INVALIDATIONS_TRACE_H

#include <stdbool.h>

#include "jitter.h"

/* One exchange in this number pauses first, so that the value it expects may be out of date. */
#define TRACE_JITTER_ONE_IN		8

/* In stress.c.  Returns `done`. */
extern bool trace_exchange(const void *word, uint64_t old, uint64_t next, bool done);

static inline bool
traced_exchange(_Atomic uint64_t *word, uint64_t *seen, uint64_t next, memory_order success,
				memory_order failure)
{
	uint64_t	old = *seen;

	herald_jitter(TRACE_JITTER_ONE_IN);
	return trace_exchange(word, old, next,
						  atomic_compare_exchange_strong_explicit(word, seen, next, success,
																 failure));
}

/* For canaries: a wait in which other threads make progress. */
static inline void
herald_dawdle(void)
{
	for (int i = 0; i < 20; i++)
		herald_jitter(1);
}

#undef atomic_compare_exchange_strong_explicit
#define atomic_compare_exchange_strong_explicit(word, seen, next, success, failure) \
	traced_exchange(word, seen, next, success, failure)

#endif							/* HERALD_INVALIDATIONS_TRACE_H */
