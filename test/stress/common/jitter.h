/*-------------------------------------------------------------------------
 *
 * jitter.h
 *	  Random pauses before every atomic access of core/, for the stress.
 *
 * Included before everything else (-include).  A race needs a step of one
 * thread between two of another, which by itself happens once in a million
 * times.  Here each atomic access may first let other threads run, at random,
 * in a sequence that follows from the thread's seed.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_JITTER_H
#define HERALD_JITTER_H

#include <stdatomic.h>
#include <stdint.h>

/* One access in this number pauses; loops over words of the log need fewer pauses. */
#ifndef JITTER_ONE_IN
#define JITTER_ONE_IN	32
#endif

/* Each thread sets its seed first; then it pauses once in `one_in` calls, or at once. */
extern void herald_jitter_seed(uint64_t seed);
extern void herald_jitter(uint32_t one_in);
extern void herald_jitter_pause(uint64_t chance);

/* The next number of the thread's sequence. */
extern uint64_t herald_jitter_random(void);

static inline uint64_t
herald_random(uint64_t *state)
{
	uint64_t	x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * UINT64_C(0x2545F4914F6CDD1D)) >> 16;
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit

#ifdef __clang__
#define JITTERED(operation, ...)	(herald_jitter(JITTER_ONE_IN), __c11_atomic_##operation(__VA_ARGS__))
#define atomic_load_explicit(p, o)			JITTERED(load, p, o)
#define atomic_store_explicit(p, v, o)		JITTERED(store, p, v, o)
#define atomic_exchange_explicit(p, v, o)	JITTERED(exchange, p, v, o)
#define atomic_compare_exchange_strong_explicit(p, e, v, s, f) \
	JITTERED(compare_exchange_strong, p, e, v, s, f)
#define atomic_compare_exchange_weak_explicit(p, e, v, s, f) \
	JITTERED(compare_exchange_weak, p, e, v, s, f)
#else
#define JITTERED(operation, ...)	(herald_jitter(JITTER_ONE_IN), __atomic_##operation(__VA_ARGS__))
#define atomic_load_explicit(p, o)			JITTERED(load_n, p, o)
#define atomic_store_explicit(p, v, o)		JITTERED(store_n, p, v, o)
#define atomic_exchange_explicit(p, v, o)	JITTERED(exchange_n, p, v, o)
#define atomic_compare_exchange_strong_explicit(p, e, v, s, f) \
	JITTERED(compare_exchange_n, p, e, v, 0, s, f)
#define atomic_compare_exchange_weak_explicit(p, e, v, s, f) \
	JITTERED(compare_exchange_n, p, e, v, 1, s, f)
#endif
#define atomic_fetch_add_explicit(p, v, o)	JITTERED(fetch_add, p, v, o)
#define atomic_fetch_sub_explicit(p, v, o)	JITTERED(fetch_sub, p, v, o)
#define atomic_fetch_or_explicit(p, v, o)	JITTERED(fetch_or, p, v, o)
#define atomic_fetch_and_explicit(p, v, o)	JITTERED(fetch_and, p, v, o)

#endif							/* HERALD_JITTER_H */
