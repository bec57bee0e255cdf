/*-------------------------------------------------------------------------
 *
 * micro.c
 *	  Measures single operations of core/, without a server.
 *
 *		micro OPERATION SIZE --ms MS			ns per operation, as JSON
 *		micro --count OPERATION SIZE ...		for callgrind, see below
 *		micro --list							operations, and the unit of their size
 *
 * Time is CPU time, which other processes on the machine hardly change; with
 * several threads it is the average per thread.  The result is the median of
 * several repeats.  Each repeat lasts MS divided by their number, or less if
 * the preparation between two loops, which is not included, takes much longer
 * than the loops.
 *
 * Instructions: under `valgrind --tool=callgrind --instr-atstart=no` each
 * operation's loop is counted separately and dumped under the name "OPERATION
 * SIZE N".  The loop itself is included (some 3 instructions per operation).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "micro.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define CAN_COUNT	1
#else
#define CAN_COUNT	0
#endif

#define REPEATS			5
#define LOOP_TIMED		100000		/* operations in one loop, about */
#define WITH_PREPARATION 3		/* largest factor by which preparation may prolong a repeat */
#define LOOP_COUNTED	200 		/* the same under callgrind, which is slow */

typedef struct Repeat
{
	double		ns;				/* per operation */
	double		running_share;	/* CPU time, as a share of the threads' elapsed time */
	uint64_t	operations;
} Repeat;

static const Operation *const groups[] = {queue_operations, wakeup_operations, thread_operations};
static const char *const size_names[] = {"nothing", "bytes", "entries", "listeners", "threads"};

/* All allocations, as a list; the link is in front of the memory. */
static void *allocated;


void *
allocate(size_t bytes)
{
	/* calloc() need not zero memory that comes fresh from the kernel. */
	char	   *memory = calloc(1, bytes + 2 * HERALD_CACHE_LINE);

	if (memory == NULL)
	{
		fputs("micro: out of memory\n", stderr);
		exit(1);
	}
	*(void **) memory = allocated;
	allocated = memory;
	return memory + 2 * HERALD_CACHE_LINE - (uintptr_t) memory % HERALD_CACHE_LINE;
}

static void
release_all(void)
{
	while (allocated != NULL)
	{
		void	   *next = *(void **) allocated;

		free(allocated);
		allocated = next;
	}
}

static const Operation *
find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const Operation *operation = groups[i]; operation->name != NULL; operation++)
			if (strcmp(operation->name, name) == 0)
				return operation;
	fprintf(stderr, "micro: no such operation: %s\n", name);
	exit(2);
}

static void
list(void)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const Operation *operation = groups[i]; operation->name != NULL; operation++)
			printf("%s %s\n", operation->name, size_names[operation->size_of]);
}

static Bench
create(const Operation *operation, const char *size)
{
	Bench		bench = {.size = (uint32_t) strtoul(size, NULL, 10)};

	if (bench.size == 0)
	{
		fprintf(stderr, "micro: a size is a whole number from 1 on, not \"%s\"\n", size);
		exit(2);
	}
	operation->create(&bench);
	return bench;
}

static uint64_t
loop_length(const Operation *operation, const Bench *bench, uint64_t wanted)
{
	return operation->loop ? operation->loop(bench, wanted) : wanted;
}

uint64_t
clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

/* Runs loops of n operations until they have taken wanted_ns of CPU time. */
static Repeat
measure_once(const Operation *operation, Bench *bench, uint64_t n, uint64_t wanted_ns)
{
	uint64_t	threads = operation->size_of == SIZE_THREADS ? bench->size : 1;
	uint64_t	operations = 0;
	uint64_t	began_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	uint64_t	spent_ns = 0;
	uint64_t	wall_ns = 0;

	do
	{
		uint64_t	start_ns;
		uint64_t	wall_start_ns;

		if (operation->prepare)
			operation->prepare(bench, n);
		wall_start_ns = clock_ns(CLOCK_MONOTONIC);
		start_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		operation->run(bench, n);
		spent_ns += bench->spent_ns ? bench->spent_ns : clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start_ns;
		wall_ns += clock_ns(CLOCK_MONOTONIC) - wall_start_ns;
		operations += n;
	} while (spent_ns < wanted_ns * threads &&
			 clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began_ns < wanted_ns * threads * WITH_PREPARATION);
	return (Repeat) {
		.ns = (double) spent_ns / (double) (operations * threads),
		.running_share = (double) spent_ns / (double) (wall_ns * threads),
		.operations = operations
	};
}

static int
compare(const void *a, const void *b)
{
	double		left = ((const Repeat *) a)->ns;
	double		right = ((const Repeat *) b)->ns;

	return (left > right) - (left < right);
}

static void
measure(const Operation *operation, const char *size, double ms)
{
	Bench		bench = create(operation, size);
	uint64_t	n = loop_length(operation, &bench, LOOP_TIMED);
	Repeat		repeats[REPEATS];
	Repeat		middle;

	/* Once to warm the caches and the branch predictor. */
	(void) measure_once(operation, &bench, n, 0);
	for (int i = 0; i < REPEATS; i++)
		repeats[i] = measure_once(operation, &bench, n, (uint64_t) (ms * 1e6 / REPEATS));
	qsort(repeats, REPEATS, sizeof(repeats[0]), compare);
	middle = repeats[REPEATS / 2];
	printf("{\"ns_per_operation\": %.3f, \"ns_min\": %.3f, \"ns_max\": %.3f, "
		   "\"running_share\": %.3f, \"operations_per_repeat\": %" PRIu64 "}\n",
		   middle.ns, repeats[0].ns, repeats[REPEATS - 1].ns, middle.running_share, middle.operations);
}

/* One loop, counted and dumped by callgrind. */
static void
count(const Operation *operation, const char *size)
{
#if CAN_COUNT
	Bench		bench = create(operation, size);
	uint64_t	n = loop_length(operation, &bench, LOOP_COUNTED);
	char		label[128];

	snprintf(label, sizeof(label), "%s %s %" PRIu64, operation->name, size, n);
	if (operation->prepare)
		operation->prepare(&bench, n);
	CALLGRIND_START_INSTRUMENTATION;
	CALLGRIND_ZERO_STATS;
	operation->run(&bench, n);
	CALLGRIND_DUMP_STATS_AT(label);
	CALLGRIND_STOP_INSTRUMENTATION;
	release_all();
#else
	(void) operation;
	(void) size;
	fputs("micro: built without the header of callgrind (Debian's package valgrind)\n", stderr);
	exit(3);
#endif
}

int
main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		list();
	else if (argc >= 4 && argc % 2 == 0 && strcmp(argv[1], "--count") == 0)
		for (int i = 2; i < argc; i += 2)
			count(find(argv[i]), argv[i + 1]);
	else if (argc == 5 && strcmp(argv[3], "--ms") == 0)
		measure(find(argv[1]), argv[2], strtod(argv[4], NULL));
	else
	{
		fputs("Usage: micro OPERATION SIZE --ms MS | --count OPERATION SIZE ... | --list\n", stderr);
		return 2;
	}
	return 0;
}
