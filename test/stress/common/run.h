/*-------------------------------------------------------------------------
 *
 * run.h
 *	  A run of a stress: threads that act as backends, in rounds.
 *
 * In each round the workers do a limited amount of work, while the other
 * threads act freely.  Then everything must come to rest by itself, or the run
 * fails; and the result is verified.  Short rounds find errors that the next
 * round would have covered up.
 *
 * run.c has main().  Each program defines what its threads do, and how a world
 * at rest is verified: see the end of this file.
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
	PHASE_ACTIVE,				/* all threads act freely */
	PHASE_QUIESCE,				/* no new work: only what is under way */
	PHASE_VERIFY,				/* all threads go to the barrier */
	PHASE_EXIT
} Phase;

typedef struct Run
{
	uint64_t	seed;
	_Atomic int phase;
	_Atomic int working;		/* workers that have not done their part of the round */
	_Atomic uint64_t steps;		/* of the workers' parts; each worker counts its own */
	_Atomic uint64_t rounds;
} Run;

extern Run	run;

/* Print what is wrong and the whole state, and end the program. */
extern void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/*
 * A thread that calls `act` in each round, from barrier to barrier.  A worker's
 * `act` returns when it has done its part; any other goes on until the phase is
 * PHASE_VERIFY.  Called by world_init() only.
 */
extern void run_add_worker(void (*act) (void *), void *arg, uint64_t jitter_seed);
extern void run_add_thread(void (*act) (void *), void *arg, uint64_t jitter_seed);

/* The start of a sequence of random numbers that follows from the run's seed. */
extern uint64_t run_random(uint64_t sequence);

extern uint64_t now_ns(void);

/*
 * A semaphore stands for SIGUSR1.  Wait for it, or for at most `ns`, less than a
 * second; false: we were not signalled.
 */
extern void signal_wait(sem_t *signal);
extern bool signal_wait_for(sem_t *signal, uint64_t ns);

/* Defined by each program, in stress.c unless noted otherwise. */

/* How often each thing happened, and its name; NULL comes last. */
extern _Atomic uint64_t counts[];
extern const char *const count_names[];

/* Create the world, and its threads. */
extern void world_init(void);

/* Choose the settings of a round, with all threads at the barrier. */
extern void world_plan_round(uint64_t *random);

/* Are all threads asleep, with nothing left that would wake one?  In PHASE_QUIESCE. */
extern bool world_is_quiet(void);

/* PHASE_VERIFY has come: wake the threads that wait for a signal. */
extern void world_wake_all(void);

/* Verify the world, with all threads at the barrier. */
extern void world_verify(void);

/* Print everything that helps to understand a failure. */
extern void world_print(void);

/* Print the results of a run other than its counts. */
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
