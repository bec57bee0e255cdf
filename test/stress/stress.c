/*-------------------------------------------------------------------------
 *
 * stress.c
 *	  Seeded stress of core/: many threads, random pauses, all checked.
 *
 *	  stress [--seed N] [--seconds N] [--hang-seconds N]
 *
 * The seed decides what each thread does and where it pauses; the machine's
 * scheduler has its say too, so that a failure may need several runs to come
 * again.  See stress.h for how it works.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stress.h"

#define SECONDS_DEFAULT			10
#define HANG_SECONDS_DEFAULT	20
#define COVERAGE_SECONDS		10	/* a run that long must have tried everything */
#define POLL_US					100
#define FIRST_BUFFER			64

World		world;
static _Thread_local uint64_t jitter_state = 1;

static const char *const count_names[COUNTS] = {
	"rounds", "batches", "aborts", "received", "passes", "again", "requeues", "self passes",
	"sessions", "left reading", "dispatched elsewhere", "more to dispatch", "signals",
	"signals saved", "rescues", "recycles", "ring full", "flow waits", "lags", "spilled",
	"read from files", "disk full", "dropped", "overrun by limit", "overrun by error",
	"resets", "disconnects", "large", "read from large files"
};

static void parse_arguments(int argc, char **argv, unsigned *seconds, unsigned *hang_seconds);
static void world_init(void);
static void run_round(uint64_t *random, double hang_seconds);
static bool report(void);
static double now(void);


int
main(int argc, char **argv)
{
	unsigned	seconds = SECONDS_DEFAULT;
	unsigned	hang_seconds = HANG_SECONDS_DEFAULT;
	pthread_t	threads[THREADS];
	int			started = 0;
	uint64_t	random;
	double		end;

	parse_arguments(argc, argv, &seconds, &hang_seconds);
	printf("seed %llu, %u seconds\n", (unsigned long long) world.seed, seconds);
	fflush(stdout);
	random = world.seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
	world_init();

	for (int i = 0; i < SENDERS; i++)
		pthread_create(&threads[started++], NULL, sender_main, &world.writers[i]);
	for (int i = 0; i < LISTENERS; i++)
		pthread_create(&threads[started++], NULL, listener_main, &world.listeners[i]);
	pthread_create(&threads[started++], NULL, watchdog_main, NULL);

	end = now() + seconds;
	while (now() < end)
		run_round(&random, hang_seconds);

	atomic_store(&world.phase, PHASE_EXIT);
	pthread_barrier_wait(&world.barrier);
	while (started > 0)
		pthread_join(threads[--started], NULL);
	return report() || seconds < COVERAGE_SECONDS ? 0 : 2;
}

static void
parse_arguments(int argc, char **argv, unsigned *seconds, unsigned *hang_seconds)
{
	world.seed = (uint64_t) time(NULL) * 1000 + (uint64_t) getpid() % 1000;
	for (int i = 1; i < argc; i += 2)
	{
		unsigned long long value = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;

		if (value > 0 && strcmp(argv[i], "--seed") == 0)
			world.seed = value;
		else if (value > 0 && strcmp(argv[i], "--seconds") == 0)
			*seconds = (unsigned) value;
		else if (value > 0 && strcmp(argv[i], "--hang-seconds") == 0)
			*hang_seconds = (unsigned) value;
		else
		{
			fprintf(stderr, "usage: %s [--seed N] [--seconds N] [--hang-seconds N]\n", argv[0]);
			exit(2);
		}
	}
}

static void
world_init(void)
{
	size_t		log_memory = herald_log_memory(HERALD_RING_MIN);
	size_t		wakeup_memory = HERALD_ALIGN_UP(herald_wakeup_memory(SLOTS)) + HERALD_CACHE_LINE;

	world.log = aligned_alloc(HERALD_CACHE_LINE, log_memory);
	world.wakeup = aligned_alloc(HERALD_CACHE_LINE, wakeup_memory & ~(size_t) (HERALD_CACHE_LINE - 1));
	herald_log_init(world.log, HERALD_RING_MIN);
	herald_wakeup_init(world.wakeup, SLOTS, 2);
	pthread_barrier_init(&world.barrier, NULL, THREADS);
	for (int i = 0; i < CHANNELS; i++)
		pthread_rwlock_init(&world.map_lock[i], NULL);
	for (uint32_t i = 0; i < WRITERS; i++)
		writer_init(&world.writers[i], i);
	for (uint32_t i = 0; i < LISTENERS; i++)
	{
		Listener   *listener = &world.listeners[i];

		listener->index = i;
		listener->slot = 3 + i * (SLOTS / LISTENERS);
		listener->database = i % DATABASES;
		listener->random = (world.seed + 1000 + i) * UINT64_C(0x9E3779B97F4A7C15) | 1;
		listener->buffer_size = FIRST_BUFFER;
		listener->buffer = aligned_alloc(HERALD_ALIGN, FIRST_BUFFER);
		sem_init(&listener->signal, 0, 0);
	}
}

/* Everybody active, then to rest, then verify. */
static void
run_round(uint64_t *random, double hang_seconds)
{
	double		hang = now() + hang_seconds;

	world.batches_per_sender = 1 + herald_random(random) % (one_in(random, 4) ? 150 : 12);
	world.rescues = one_in(random, 2);
	world.flow_control = one_in(random, 2);
	world.lags = one_in(random, 2);
	world.disk_fills = one_in(random, 4);
	world.bytes_in_files = one_in(random, 2) ? UINT64_MAX :
		herald_random(random) % HERALD_SEGMENTS * world.log->segment_size;
	atomic_store(&world.wakeup->turns_max, 1 + herald_random(random) % 3);
	atomic_store(&world.senders_done, 0);
	atomic_store(&world.phase, PHASE_ACTIVE);
	pthread_barrier_wait(&world.barrier);

	while (atomic_load(&world.senders_done) < SENDERS)
	{
		if (now() > hang)
			fail("the senders do not come to an end");
		usleep(POLL_US);
	}
	atomic_store(&world.phase, PHASE_QUIESCE);
	while (!world_is_quiet())
	{
		if (now() > hang)
			fail("this does not come to rest");
		usleep(POLL_US);
	}
	atomic_store(&world.phase, PHASE_VERIFY);
	for (int i = 0; i < LISTENERS; i++)
		sem_post(&world.listeners[i].signal);
	pthread_barrier_wait(&world.barrier);
	verify_round();
	count(COUNT_ROUNDS);
}

void
fail(const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	va_list		args;

	pthread_mutex_lock(&once);	/* and never let go: the first one ends it */
	fprintf(stderr, "FAILED, seed %llu, round %llu: ", (unsigned long long) world.seed,
			(unsigned long long) atomic_load(&world.counts[COUNT_ROUNDS]));
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	world_print();
	_exit(1);
}

/* Print the counts.  False: something that was to be tried never happened. */
static bool
report(void)
{
	bool		all = true;

	for (int i = 0; i < COUNTS; i++)
	{
		uint64_t	n = atomic_load(&world.counts[i]);

		printf("%s %llu%s", count_names[i], (unsigned long long) n,
			   i + 1 < COUNTS ? ", " : "\n");
		all = all && n > 0;
	}
	printf("laps %llu\n", (unsigned long long) (atomic_load(&world.log->head) /
												world.log->ring_size - 1));
	if (!all)
		printf("something never happened: give it more seconds\n");
	return all;
}

void
herald_jitter_seed(uint64_t seed)
{
	jitter_state = seed | 1;
}

void
herald_jitter(uint32_t one_in)
{
	uint64_t	chance = herald_random(&jitter_state);

	if (chance % one_in == 0)
		herald_jitter_pause(chance / one_in);
}

void
herald_jitter_pause(uint64_t chance)
{
	if (chance % 16 == 0)
		usleep((useconds_t) (chance / 16 % 80));
	else
		sched_yield();
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}
