/*-------------------------------------------------------------------------
 *
 * stress.c
 *	  Seeded stress of inval_queue.c: many threads, random pauses, all checked.
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
#define SIGNAL_LATE_ONE_IN		8
#define SIGNAL_LATE_US_MAX		2000

#define RESCUE_LOOKS_MAX		8
#define LOOK_PAUSES				9	/* 1, 2, 4 ... microseconds */

World		world;
static _Thread_local uint64_t jitter_state = 1;

static const char *const count_names[COUNTS] = {
	"rounds", "inserted", "read", "passes", "signals", "late signals",
	"handed on", "resets", "resets midway", "resets of the holder", "joins",
	"left midway", "left with the turn", "rescues", "rescues for nobody",
	"stuck and back"
};

static void parse_arguments(int argc, char **argv, unsigned *seconds, unsigned *hang_seconds);
static void world_init(void);
static void run_round(uint64_t *random, double hang_seconds);
static bool is_quiet(void);
static void wake(Reader *reader);
static void check_at_rest(void);
static void print_world(void);
static bool report(double seconds);
static double now(void);


int
main(int argc, char **argv)
{
	unsigned	seconds = SECONDS_DEFAULT;
	unsigned	hang_seconds = HANG_SECONDS_DEFAULT;
	pthread_t	threads[THREADS];
	int			started = 0;
	uint64_t	random;
	double		start;

	parse_arguments(argc, argv, &seconds, &hang_seconds);
	printf("seed %llu, %u seconds\n", (unsigned long long) world.seed, seconds);
	fflush(stdout);
	random = world.seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
	world_init();

	for (int i = 0; i < INSERTERS; i++)
		pthread_create(&threads[started++], NULL, inserter_main, &world.inserters[i]);
	for (int i = 0; i < READERS; i++)
		pthread_create(&threads[started++], NULL, reader_main, &world.readers[i]);
	pthread_create(&threads[started++], NULL, watchdog_main, NULL);

	start = now();
	while (now() < start + seconds)
		run_round(&random, hang_seconds);

	atomic_store(&world.phase, PHASE_EXIT);
	pthread_barrier_wait(&world.barrier);
	while (started > 0)
		pthread_join(threads[--started], NULL);
	return report(now() - start) || seconds < COVERAGE_SECONDS ? 0 : 2;
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
	world.queue = aligned_alloc(HERALD_CACHE_LINE,
								herald_inval_memory(HERALD_INVAL_SIZE_MIN, SLOTS));
	herald_inval_init(world.queue, HERALD_INVAL_SIZE_MIN, SLOTS);
	pthread_barrier_init(&world.barrier, NULL, THREADS);
	pthread_mutex_init(&world.lock, NULL);
	pthread_mutex_init(&world.slots_lock, NULL);
	for (uint32_t i = 0; i < INSERTERS; i++)
	{
		world.inserters[i].index = i;
		world.inserters[i].random = (world.seed + i) * UINT64_C(0x9E3779B97F4A7C15) | 1;
	}
	for (uint32_t i = 0; i < READERS; i++)
	{
		world.readers[i].index = i;
		world.readers[i].random = (world.seed + 1000 + i) * UINT64_C(0x9E3779B97F4A7C15) | 1;
		sem_init(&world.readers[i].signal, 0, 0);
	}
}

/* Everybody active, then to rest, then verify. */
static void
run_round(uint64_t *random, double hang_seconds)
{
	double		hang = now() + hang_seconds;

	world.inserts = 1 + (uint32_t) (herald_random(random) % (one_in(random, 8) ? 600 : 60));
	world.pause_one_in = UINT32_C(1) << herald_random(random) % 8;
	world.rescues = one_in(random, 2);
	world.rescue_looks = 1 + (uint32_t) (herald_random(random) % RESCUE_LOOKS_MAX);
	world.look_pause_us = UINT32_C(1) << herald_random(random) % LOOK_PAUSES;
	atomic_store(&world.inserters_done, 0);
	atomic_store(&world.phase, PHASE_ACTIVE);
	pthread_barrier_wait(&world.barrier);

	while (atomic_load(&world.inserters_done) < INSERTERS)
	{
		if (now() > hang)
			fail("the inserters do not come to an end");
		usleep(POLL_US);
	}
	atomic_store(&world.phase, PHASE_QUIESCE);
	while (!is_quiet())
	{
		if (now() > hang)
			fail("this does not come to rest");
		usleep(POLL_US);
	}
	check_at_rest();
	atomic_store(&world.phase, PHASE_VERIFY);
	for (int i = 0; i < READERS; i++)
		wake(&world.readers[i]);
	pthread_barrier_wait(&world.barrier);

	for (int i = 0; i < READERS; i++)
		reader_finish(&world.readers[i]);
	check_at_rest();
	count(COUNT_ROUNDS);
}

/*
 * Nobody acts by himself any more, and then, no signal is out.  Who acts upon
 * one counts the next before it lets go of its own.
 */
static bool
is_quiet(void)
{
	if (atomic_load(&world.rescuing) != 0)
		return false;
	for (int i = 0; i < READERS; i++)
	{
		if (atomic_load(&world.readers[i].parked) == 0)
			return false;
	}
	return atomic_load(&world.signals_out) == 0;
}

/* With nothing under way, nobody has the turn, and nobody should have it. */
static void
check_at_rest(void)
{
	HeraldInvalQueue *queue = world.queue;
	uint64_t	given = atomic_load(&world.turns_given);

	if (holder_of(herald_inval_turn(queue)) != HERALD_INVAL_NOBODY)
		fail("nobody is signalled, but slot %d has the turn", holder_of(herald_inval_turn(queue)));
	if (given != atomic_load(&world.turns_ended))
		fail("%llu turns were given, and %llu have ended", (unsigned long long) given,
			 (unsigned long long) atomic_load(&world.turns_ended));
	if (atomic_load(&queue->signals) != atomic_load(&world.counts[COUNT_SIGNALS]) +
		atomic_load(&world.counts[COUNT_LATE_SIGNALS]))
		fail("%llu signals are counted that were not sent, or the reverse",
			 (unsigned long long) atomic_load(&queue->signals));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		uint64_t	word = word_of(slot);

		if (herald_inval_state(word) != HERALD_INVAL_READING)
			continue;
		if (atomic_load(&queue->readers[slot].stuck) != 0)
			fail("slot %u has caught up when it was signalled, and is stuck", slot);
		if (herald_inval_position(word) + queue->size / HERALD_INVAL_FAR_BEHIND <= world.last_look)
			fail("slot %u was far behind at %llu, and nobody has the turn", slot,
				 (unsigned long long) world.last_look);
	}
}

void
send_signal(int32_t slot)
{
	uint32_t	owner;

	if (slot == HERALD_INVAL_NOBODY)
		return;
	if (one_in(&jitter_state, SIGNAL_LATE_ONE_IN))
		usleep((useconds_t) (herald_random(&jitter_state) % SIGNAL_LATE_US_MAX));
	owner = atomic_load(&world.owner[slot]);
	count(owner != 0 ? COUNT_SIGNALS : COUNT_LATE_SIGNALS);
	if (owner != 0)
		wake(&world.readers[owner - 1]);
}

static void
wake(Reader *reader)
{
	atomic_fetch_add(&world.signals_out, 1);
	sem_post(&reader->signal);
}

/* A turn begins with a number of its own, when nobody has it; it ends with that number. */
bool
trace_exchange(const void *word, uint64_t old, uint64_t next, bool done)
{
	bool		begins = holder_of(next) != HERALD_INVAL_NOBODY;

	if (word != &world.queue->turn || !done)
		return done;
	if (begins == (holder_of(old) != HERALD_INVAL_NOBODY))
		fail("the turn went from slot %d to slot %d", holder_of(old), holder_of(next));
	if ((uint32_t) (next >> 32) != (uint32_t) (old >> 32) + begins)
		fail("the turn %llu came after %llu", (unsigned long long) (next >> 32),
			 (unsigned long long) (old >> 32));
	atomic_fetch_add(begins ? &world.turns_given : &world.turns_ended, 1);
	return done;
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
	print_world();
	_exit(1);
}

static void
print_world(void)
{
	HeraldInvalQueue *queue = world.queue;
	static const char *const states[] = {"free", "reading", "reset", "?"};

	fprintf(stderr, "head %llu, turn of %d\n", (unsigned long long) atomic_load(&queue->head),
			holder_of(herald_inval_turn(queue)));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		fprintf(stderr, "slot %u: %s at %llu%s\n", slot, states[word_of(slot) & 3],
				(unsigned long long) herald_inval_position(word_of(slot)),
				atomic_load(&queue->readers[slot].stuck) != 0 ? ", stuck" : "");
}

/* Print counts and rates.  False: something that was to be tried never happened. */
static bool
report(double seconds)
{
	double		inserted = (double) atomic_load(&world.counts[COUNT_INSERTED]);
	double		read = (double) atomic_load(&world.counts[COUNT_READ]);
	bool		all = true;

	for (int i = 0; i < COUNTS; i++)
	{
		uint64_t	n = atomic_load(&world.counts[i]);

		printf("%s %llu%s", count_names[i], (unsigned long long) n,
			   i + 1 < COUNTS ? ", " : "\n");
		all = all && n > 0;
	}
	printf("per second: %.0f inserted, %.0f read; nanoseconds each: %.1f to insert, %.1f to read\n",
		   inserted / seconds, read / seconds,
		   (double) atomic_load(&world.insert_ns) / inserted,
		   (double) atomic_load(&world.read_ns) / read);
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

uint64_t
now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t) time.tv_sec * UINT64_C(1000000000) + (uint64_t) time.tv_nsec;
}

static double
now(void)
{
	return (double) now_ns() / 1e9;
}
