/*-------------------------------------------------------------------------
 *
 * count.h
 *	  Counting in shared memory.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_COUNT_H
#define HERALD_COUNT_H

#include "postgres.h"

#include <stdatomic.h>

/* Add to a counter that only this process writes, so no locked instruction is needed. */
static inline void
herald_count(_Atomic uint64_t *counter, uint64 n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
						  memory_order_relaxed);
}

#endif							/* HERALD_COUNT_H */
