/*-------------------------------------------------------------------------
 *
 * thread_operations.c
 *	  The cost of operations that several threads run at once.
 *
 * An operation is one operation of one thread: without contention it takes as
 * long with two threads as with one.  On a busy machine the threads do not always
 * run at the same time, and contend less than they would otherwise.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "micro.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS_MAX		64
#define WORDS_PER_LINE	(HERALD_CACHE_LINE / sizeof(uint64_t))
#define ROUND			100000

typedef struct Worker
{
	Bench	   *bench;
	uint32_t	number;
	uint64_t	n;
	void		(*work) (Bench *bench, uint32_t number, uint64_t n);
	pthread_barrier_t *barrier;
	uint64_t	spent_ns;		/* its own CPU time */
} Worker;

/* Pins each worker to a CPU of its own, as far as there are enough. */
static void
pin(uint32_t number)
{
	static cpu_set_t allowed;
	static bool known;
	cpu_set_t	mine;
	int			skip;

	/* Ask once, before the first thread is pinned and others are created. */
	if (!known && sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return;
	known = true;
	skip = (int) number % CPU_COUNT(&allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
	{
		if (CPU_ISSET(cpu, &allowed) && skip-- == 0)
		{
			CPU_ZERO(&mine);
			CPU_SET(cpu, &mine);
			(void) sched_setaffinity(0, sizeof(mine), &mine);
			return;
		}
	}
}

/* Starts its work at the same time as all others. */
static void *
run_worker(void *arg)
{
	Worker	   *worker = arg;

	uint64_t	start_ns;

	pin(worker->number);
	pthread_barrier_wait(worker->barrier);
	start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	worker->work(worker->bench, worker->number, worker->n);
	worker->spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
	return NULL;
}

/* The first worker is the caller. */
static void
run_threads(Bench *bench, uint64_t n, void (*work) (Bench *bench, uint32_t number, uint64_t n))
{
	pthread_t	threads[THREADS_MAX];
	Worker		workers[THREADS_MAX];
	pthread_barrier_t barrier;

	if (bench->size > THREADS_MAX)
		abort();
	pthread_barrier_init(&barrier, NULL, bench->size);
	for (uint32_t i = 0; i < bench->size; i++)
	{
		workers[i] = (Worker) {.bench = bench,.number = i,.n = n,.work = work,.barrier = &barrier};
		if (i == 0)
			pin(0);
		else if (pthread_create(&threads[i], NULL, run_worker, &workers[i]) != 0)
			abort();
	}
	run_worker(&workers[0]);
	bench->spent_ns = workers[0].spent_ns;
	for (uint32_t i = 1; i < bench->size; i++)
	{
		pthread_join(threads[i], NULL);
		bench->spent_ns += workers[i].spent_ns;
	}
	pthread_barrier_destroy(&barrier);
}

/* A queue with batches of one notification, and a wakeup with enough slots for all threads. */
static void
create(Bench *bench)
{
	uint32_t	threads = bench->size;

	bench->size = 1;
	log_create(bench);
	bench->size = threads;
	herald_queue_init(bench->queue, RING_SIZE);
	bench->wakeups = allocate(sizeof(HeraldWakeup *));
	bench->wakeups[0] = wakeup_create(THREADS_MAX * WORDS_PER_LINE);
}

static uint64_t
share_of_ring(const Bench *bench, uint64_t wanted)
{
	return log_loop(bench, wanted * bench->size) / bench->size;
}

static uint64_t
one_round(const Bench *bench, uint64_t wanted)
{
	(void) bench;
	return wanted < ROUND ? wanted : ROUND;
}

static void
reserve(Bench *bench, uint32_t number, uint64_t n)
{
	(void) number;
	for (uint64_t i = 0; i < n; i++)
		consume(log_reserve(bench, DATABASE));
}

static void
run_reserve(Bench *bench, uint64_t n)
{
	run_threads(bench, n, reserve);
}

/* One thread at a time, as under the server's spill_lock: two at once would clear what a sender has written already. */
static void
recycle(Bench *bench)
{
	static pthread_mutex_t spill_lock = PTHREAD_MUTEX_INITIALIZER;

	if (pthread_mutex_trylock(&spill_lock) != 0)
		return;
	(void) herald_queue_recycle(bench->queue, herald_wakeup_needed(bench->wakeups[0], bench->queue));
	pthread_mutex_unlock(&spill_lock);
}

/* As notify/sender/publish.c does it: recycle, reserve, fill, commit, dispatch. */
static void
send_and_dispatch(Bench *bench, uint32_t number, uint64_t n)
{
	HeraldQueue *queue = bench->queue;
	HeraldBatch batch = {.count = 1,.database = DATABASE,.role = (uint32_t) number};

	for (uint64_t i = 0; i < n; i++)
	{
		HeraldPosition position;

		if (herald_queue_is_short(queue))
			recycle(bench);
		while (!herald_queue_reserve(queue, &batch, bench->entries_length, &position))
		{
			sched_yield();
			recycle(bench);
		}
		herald_queue_fill(queue, position, bench->entries, bench->entries_length);
		herald_queue_commit(queue, position, 1, 1);
		log_dispatch(bench);
	}
}

static void
run_send_and_dispatch(Bench *bench, uint64_t n)
{
	run_threads(bench, n, send_and_dispatch);
}

/* All changes of a listener's word for one message: marked, signalled, read. */
static void
cycle_word(HeraldListenerWord *word, uint64_t n)
{
	HeraldPosition position;

	for (uint64_t i = 0; i < n; i++)
	{
		(void) herald_listener_mark(word, RING_SIZE);
		(void) herald_listener_signal(word);
		(void) herald_listener_begin(word, &position);
		(void) herald_listener_finish(word, position);
	}
}

static void
cycle_neighbour(Bench *bench, uint32_t number, uint64_t n)
{
	cycle_word(herald_wakeup_word(bench->wakeups[0], number), n);
}

static void
cycle_apart(Bench *bench, uint32_t number, uint64_t n)
{
	cycle_word(herald_wakeup_word(bench->wakeups[0], number * 2 * WORDS_PER_LINE), n);
}

static void
run_cycle_neighbours(Bench *bench, uint64_t n)
{
	run_threads(bench, n, cycle_neighbour);
}

static void
run_cycle_apart(Bench *bench, uint64_t n)
{
	run_threads(bench, n, cycle_apart);
}

static bool
ignore_signal(uint32_t slot, void *arg)
{
	(void) slot;
	(void) arg;
	return true;
}

/*
 * Each thread wakes a listener of its own, with enough turns for all: they only
 * share the wakeup set and the count of turns.  One thread may give a turn to the
 * other's listener, so a thread reads for its listener in any case, signalled by
 * itself or not.
 */
static void
wake_own(Bench *bench, uint32_t number, uint64_t n)
{
	HeraldWakeup *wakeup = bench->wakeups[0];
	uint32_t	slot = number * 2 * WORDS_PER_LINE;

	for (uint64_t i = 0; i < n; i++)
	{
		HeraldPosition from;
		HeraldPosition to;

		(void) herald_wakeup_mark(wakeup, slot, RING_SIZE);
		(void) herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, ignore_signal, NULL);
		if (herald_wakeup_begin(wakeup, bench->queue, slot, &from, &to))
		{
			to = RING_SIZE;
			(void) herald_wakeup_finish(wakeup, bench->queue, slot, &to);
		}
		(void) herald_wakeup_yield(wakeup, slot);
		(void) herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, ignore_signal, NULL);
	}
}

static void
run_wake_own(Bench *bench, uint64_t n)
{
	atomic_store(&bench->wakeups[0]->turns_max, bench->size);
	run_threads(bench, n, wake_own);
}

const Operation thread_operations[] = {
	{"reserve_at_once", SIZE_THREADS, create, log_reset, run_reserve, share_of_ring},
	{"send_dispatch_at_once", SIZE_THREADS, create, NULL, run_send_and_dispatch, NULL},
	{"words_in_one_line", SIZE_THREADS, create, NULL, run_cycle_neighbours, one_round},
	{"words_in_own_lines", SIZE_THREADS, create, NULL, run_cycle_apart, one_round},
	{"wake_at_once", SIZE_THREADS, create, NULL, run_wake_own, one_round},
	{0}
};
