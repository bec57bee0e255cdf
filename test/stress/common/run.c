/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Runs a stress: its threads, its rounds, and its end.
 *
 *	  stress [--seed N] [--seconds N] [--rounds N] [--hang-seconds N]
 *
 * It runs at least this long and at least this number of rounds: on a busy machine a second has few rounds.
 * The seed decides what each thread does and where it pauses.  The machine's
 * scheduler matters, too, so it may take several runs to reproduce a failure.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

#define THREADS_MAX			16
#define COVERAGE_SECONDS	10	/* a run of this length must have tried everything */
#define POLL_US				100
#define NS_PER_SECOND		UINT64_C(1000000000)

typedef struct Thread
{
	pthread_t	id;
	void		(*act) (void *);
	void	   *arg;
	uint64_t	jitter_seed;
	bool		is_worker;
} Thread;

Run			run;

static unsigned seconds = 10;
static unsigned rounds = 1;
static unsigned hang_seconds = 20;
static Thread threads[THREADS_MAX];
static int	thread_count;
static int	worker_count;
static pthread_barrier_t barrier;	/* of all threads, and main */

static void parse_arguments(int argc, char **argv);
static void start_threads(void);
static void end_threads(void);
static void *thread_main(void *arg);
static void run_round(uint64_t *random);
static void await(bool (*is_so) (void), const char *complaint);
static bool workers_are_done(void);
static bool report(double seconds_taken);


int
main(int argc, char **argv)
{
	uint64_t	random;
	uint64_t	start;
	bool		all;

	parse_arguments(argc, argv);
	printf("seed %llu, %u seconds\n", (unsigned long long) run.seed, seconds);
	fflush(stdout);
	random = run_random(0);
	world_init();
	start_threads();

	start = now_ns();
	while (now_ns() < start + seconds * NS_PER_SECOND || atomic_load(&run.rounds) < rounds)
		run_round(&random);

	end_threads();
	all = report((double) (now_ns() - start) / NS_PER_SECOND);
	return all || seconds < COVERAGE_SECONDS ? 0 : 2;
}

static void
parse_arguments(int argc, char **argv)
{
	run.seed = (uint64_t) time(NULL) * 1000 + (uint64_t) getpid() % 1000;
	for (int i = 1; i < argc; i += 2)
	{
		unsigned long long value = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;

		if (value > 0 && strcmp(argv[i], "--seed") == 0)
			run.seed = value;
		else if (value > 0 && strcmp(argv[i], "--seconds") == 0)
			seconds = (unsigned) value;
		else if (value > 0 && strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned) value;
		else if (value > 0 && strcmp(argv[i], "--hang-seconds") == 0)
			hang_seconds = (unsigned) value;
		else
		{
			fprintf(stderr, "usage: %s [--seed N] [--seconds N] [--rounds N] [--hang-seconds N]\n", argv[0]);
			exit(2);
		}
	}
}

void
run_add_thread(void (*act) (void *), void *arg, uint64_t jitter_seed)
{
	assert(thread_count < THREADS_MAX);
	threads[thread_count++] = (Thread) {.act = act,.arg = arg,.jitter_seed = jitter_seed};
}

void
run_add_worker(void (*act) (void *), void *arg, uint64_t jitter_seed)
{
	run_add_thread(act, arg, jitter_seed);
	threads[thread_count - 1].is_worker = true;
	worker_count++;
}

static void
start_threads(void)
{
	pthread_barrier_init(&barrier, NULL, (unsigned) thread_count + 1);
	for (int i = 0; i < thread_count; i++)
		pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
}

static void
end_threads(void)
{
	atomic_store(&run.phase, PHASE_EXIT);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < thread_count; i++)
		pthread_join(threads[i].id, NULL);
}

static void *
thread_main(void *arg)
{
	Thread	   *thread = arg;

	herald_jitter_seed(thread->jitter_seed);
	for (;;)
	{
		pthread_barrier_wait(&barrier);
		if (current_phase() == PHASE_EXIT)
			return NULL;
		thread->act(thread->arg);
		if (thread->is_worker)
			atomic_fetch_sub(&run.working, 1);
		pthread_barrier_wait(&barrier);
	}
}

/* All threads are active, then come to rest, then the world is verified. */
static void
run_round(uint64_t *random)
{
	world_plan_round(random);
	atomic_store(&run.working, worker_count);
	atomic_store(&run.phase, PHASE_ACTIVE);
	pthread_barrier_wait(&barrier);

	await(workers_are_done, "no worker goes on");
	atomic_store(&run.phase, PHASE_QUIESCE);
	await(world_is_quiet, "this does not come to rest");
	atomic_store(&run.phase, PHASE_VERIFY);
	world_wake_all();
	pthread_barrier_wait(&barrier);
	world_verify();
	atomic_fetch_add(&run.rounds, 1);
}

/* A busy machine is slow, which is no failure: the time counts from the last step that a worker has made. */
static void
await(bool (*is_so) (void), const char *complaint)
{
	uint64_t	steps = atomic_load(&run.steps);
	uint64_t	since = now_ns();

	while (!is_so())
	{
		if (atomic_load(&run.steps) != steps)
		{
			steps = atomic_load(&run.steps);
			since = now_ns();
		}
		else if (now_ns() - since > hang_seconds * NS_PER_SECOND)
			fail("%s", complaint);
		usleep(POLL_US);
	}
}

static bool
workers_are_done(void)
{
	return atomic_load(&run.working) == 0;
}

void
fail(const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	va_list		args;

	pthread_mutex_lock(&once);	/* and never unlock: the first failure ends the program */
	fprintf(stderr, "FAILED, seed %llu, round %llu: ", (unsigned long long) run.seed,
			(unsigned long long) atomic_load(&run.rounds));
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nphase %d, %d at work\n", atomic_load(&run.phase), atomic_load(&run.working));
	world_print();
	_exit(1);
}

/* Print the counts.  False: something that must be tried never happened. */
static bool
report(double seconds_taken)
{
	uint64_t	done = atomic_load(&run.rounds);
	bool		all = done > 0;

	printf("rounds %llu", (unsigned long long) done);
	for (int i = 0; count_names[i] != NULL; i++)
	{
		uint64_t	n = atomic_load(&counts[i]);

		printf(", %s %llu", count_names[i], (unsigned long long) n);
		all = all && n > 0;
	}
	printf("\n");
	world_report(seconds_taken);
	if (!all)
		printf("something never happened: give it more seconds\n");
	return all;
}

uint64_t
run_random(uint64_t sequence)
{
	return (run.seed + sequence) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

uint64_t
now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t) time.tv_sec * NS_PER_SECOND + (uint64_t) time.tv_nsec;
}

void
signal_wait(sem_t *signal)
{
	while (sem_wait(signal) != 0 && errno == EINTR)
		;
}

bool
signal_wait_for(sem_t *signal, uint64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long) ns;
	if (until.tv_nsec >= (long) NS_PER_SECOND)
	{
		until.tv_nsec -= (long) NS_PER_SECOND;
		until.tv_sec++;
	}
	return sem_timedwait(signal, &until) == 0;
}
