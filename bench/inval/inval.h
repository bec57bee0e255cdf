/*-------------------------------------------------------------------------
 *
 * inval.h
 *	  Shared declarations of the comparison of policies.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef INVAL_H
#define INVAL_H

#include "inval_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BACKENDS_MAX	256
#define MESSAGES_MAX	1024	/* of one transaction */

/* Counts of one backend's work; only the backend writes them, and the parent reads them. */
typedef struct Counters
{
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t transactions;
	_Atomic uint64_t messages;	/* read */
	_Atomic uint64_t reads;		/* that found messages */
	_Atomic uint64_t resets;	/* its whole cache was emptied */
	_Atomic uint64_t missed;	/* gaps in a writer's numbers without a reset: must be 0 */
	_Atomic uint64_t rebuilt;	/* entries computed */
	_Atomic uint64_t catch_ups; /* reads because of a signal */
	_Atomic uint64_t signals;	/* sent */
	_Atomic uint64_t shared;	/* acquisitions of the lock */
	_Atomic uint64_t exclusive;
	_Atomic uint64_t waits;		/* acquisitions, shared or exclusive, that had to wait */
	_Atomic uint64_t waited_ns;
} Counters;

#define COUNTERS_COUNT	12

/* The lock has a cache line of its own, like the server's locks. */
typedef struct Shared
{
	_Alignas(HERALD_CACHE_LINE) pthread_rwlock_t lock;
	_Alignas(HERALD_CACHE_LINE) uint32_t backends;
	pid_t		pids[BACKENDS_MAX];
	Counters	counters[BACKENDS_MAX];
} Shared;

typedef struct Backend
{
	Shared	   *shared;
	HeraldInvalQueue *queue;	/* in the old policy an OldQueue */
	const struct Policy *policy;
	Counters   *counters;
	uint32_t	slot;
	struct Cache *cache;

	/* By writer: the number of its last message; 0: unknown. */
	uint32_t	last[BACKENDS_MAX];
} Backend;

/* One way to keep caches valid, with its own queue in shared memory. */
typedef struct Policy
{
	const char *name;
	size_t		(*memory) (uint32_t size, uint32_t slots);
	void		(*init) (HeraldInvalQueue *queue, uint32_t size, uint32_t slots);
	void		(*join) (Backend *self);
	void		(*accept) (Backend *self);	/* process messages of other backends */
	void		(*catch_up) (Backend *self);	/* the same, because of a signal */
	void		(*insert) (Backend *self, const HeraldInvalidation *messages, uint32_t count);
} Policy;

extern const Policy policy_old; /* old.c */
extern const Policy policy_published;	/* core.c */
extern const Policy policy_herald;

/* The work of a transaction; see backend.c. */
typedef struct Load
{
	uint64_t	work_steps;
	uint32_t	messages;
} Load;

/* backend.c: the backend runs until its client's end of the socket is closed */
extern _Noreturn void backend_main(Backend *self, const Load *load, int socket);
extern void backend_apply(Backend *self, const HeraldInvalidation *message);
extern void backend_reset(Backend *self);
extern void backend_signal(Backend *self, uint32_t slot);
extern uint64_t backend_work(uint64_t steps);

/* lock.c */
extern void lock_init(Shared *shared);
extern void lock_shared(Backend *self);
extern void lock_exclusive(Backend *self);
extern void lock_release(Backend *self);

extern uint64_t clock_ns(void);

/* Adds to a counter that only the caller writes. */
static inline void
count(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
						  memory_order_relaxed);
}

#endif							/* INVAL_H */
