/*-------------------------------------------------------------------------
 *
 * run.h
 *	  A run of a stress: threads that act as backends, in rounds.
 *
 * In each round the workers do so much, while the other threads do as they
 * like.  Then everything comes to rest by itself, or the run fails; and all
 * is looked at.  Short rounds find what the next one would have covered up.
 *
 * run.c has main().  What the threads do, and how it is with a world at rest,
 * is the program's: see the end of this file.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_STRESS_RUN_H
#define HERALD_STRESS_RUN_H

#include <semaphore.h>
#include <stdbool.h>

#include "jitter.h"

typedef enum Phase
{
	PHASE_ACTIVE,				/* everybody does as he likes */
	PHASE_QUIESCE,				/* no new work: only what is under way */
	PHASE_VERIFY,				/* all to the barrier */
	PHASE_EXIT
} Phase;

typedef struct Run
{
	uint64_t	seed;
	_Atomic int phase;
	_Atomic int working;		/* workers that have not done their part of the round */
	_Atomic uint64_t rounds;
} Run;

extern Run	run;

/* Print what is wrong and the whole state, and end the program. */
extern void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * A thread that does `act` in each round, from barrier to barrier.  A worker's
 * comes to an end when it has done its part; any other's goes on until the
 * phase is PHASE_VERIFY.  By world_init() only.
 */
extern void run_add_worker(void (*act) (void *), void *arg, uint64_t jitter_seed);
extern void run_add_thread(void (*act) (void *), void *arg, uint64_t jitter_seed);

/* Where a sequence of random numbers begins that follows from the run's seed. */
extern uint64_t run_random(uint64_t sequence);

extern uint64_t now_ns(void);

/*
 * A semaphore stands for SIGUSR1.  Wait for it, or for so long, less than a
 * second: false, nobody has signalled us.
 */
extern void signal_wait(sem_t *signal);
extern bool signal_wait_for(sem_t *signal, uint64_t ns);

/* What the program has, in stress.c if nothing else is said. */

/* What happened how often, and what it is called; NULL comes last. */
extern _Atomic uint64_t counts[];
extern const char *const count_names[];

/* The world, and its threads. */
extern void world_init(void);

/* What a round will be like: all threads are at the barrier. */
extern void world_plan_round(uint64_t *random);

/* Is nobody awake, and nothing left that would wake anyone?  In PHASE_QUIESCE. */
extern bool world_is_quiet(void);

/* PHASE_VERIFY has come: wake whoever waits for a signal. */
extern void world_wake_all(void);

/* With all threads at the barrier: is all as it should be? */
extern void world_verify(void);

/* Everything that helps to understand a failure. */
extern void world_print(void);

/* What there is to say of a run beyond its counts. */
extern void world_report(double seconds);

static inline void
count_many(int which, uint64_t n)
{
	atomic_fetch_add_explicit(&counts[which], n, memory_order_relaxed);
}

static inline void
count(int which)
{
	count_many(which, 1);
}

static inline Phase
current_phase(void)
{
	return (Phase) atomic_load_explicit(&run.phase, memory_order_acquire);
}

/* True once in `n` times. */
static inline bool
one_in(uint64_t *random, uint64_t n)
{
	return herald_random(random) % n == 0;
}

#endif							/* HERALD_STRESS_RUN_H */
