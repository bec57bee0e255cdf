/*
 * steady.c
 *		One connection that sends a statement at a steady rate, and measures
 *		the time of each.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * It is a process of its own, so that it competes for the CPUs as any other
 * client does, and its times do not include work of the listening client.
 * Statement k is due at start + k * interval, or with --jitter at a random
 * moment of that interval; if the previous statement still runs, it is sent
 * after that.  `took_us` is from when a statement is sent, `from_due_us` from
 * when it was due: that includes the wait behind slow statements, and a late
 * wakeup by the kernel.
 *
 * With --busy it does not sleep until the next statement is due, but uses its
 * CPU: a scheduler makes a process that has run a lot wait longer.  It waits
 * for the answer in poll(), as libpq does.
 *
 * Ends after --seconds, or on SIGTERM, and prints one line of JSON.  The PG*
 * environment determines the server.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <libpq-fe.h>

#include "client.h"

#define STATEMENTS_MAX 1000000

/* Statements in this time after the start are not counted: caches are cold, other clients start. */
#define WARM_UP_NS UINT64_C(100000000)

typedef struct Options
{
	const char *sql;
	uint64_t	interval_ns;
	double		seconds;
	bool		jitter;
	bool		busy;
	bool		prepared;
} Options;

static volatile sig_atomic_t stopped = 0;

static void
stop(int signal_number)
{
	(void) signal_number;
	stopped = 1;
}

static Options
parse_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"interval-us", required_argument, NULL, 'i'},
		{"seconds", required_argument, NULL, 's'},
		{"jitter", no_argument, NULL, 'j'},
		{"busy", no_argument, NULL, 'b'},
		{"prepared", no_argument, NULL, 'p'},
		{NULL, 0, NULL, 0}
	};
	Options		options = {0};
	int			index = 0;
	int			letter;

	while ((letter = getopt_long(argc, argv, "", known, &index)) != -1)
	{
		if (letter == 'i')
			options.interval_ns = (uint64_t) whole_number(known[index].name, optarg, 1, INT_MAX) * 1000;
		else if (letter == 's')
			options.seconds = number_above_zero(known[index].name, optarg);
		else if (letter == 'j')
			options.jitter = true;
		else if (letter == 'b')
			options.busy = true;
		else if (letter == 'p')
			options.prepared = true;
		else
			exit(2);
	}
	if (optind != argc - 1 || options.interval_ns == 0 || options.seconds <= 0)
		die("usage: steady --interval-us US --seconds S [--jitter] [--busy] [--prepared] SQL");
	options.sql = argv[optind];
	return options;
}

static PGconn *
open_connection(const Options *options)
{
	PGconn	   *pg = PQconnectdb("");
	PGresult   *result;

	if (PQstatus(pg) != CONNECTION_OK)
		die("cannot connect: %s", PQerrorMessage(pg));
	if (options->prepared)
	{
		result = PQprepare(pg, "statement", options->sql, 0, NULL);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s: %s", options->sql, PQerrorMessage(pg));
		PQclear(result);
	}
	return pg;
}

/* Sends the statement, and returns after its answer. */
static void
run(PGconn *pg, const Options *options)
{
	PGresult   *result = options->prepared
		? PQexecPrepared(pg, "statement", 0, NULL, NULL, NULL, 0) : PQexec(pg, options->sql);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		die("%s: %s", options->sql, PQerrorMessage(pg));
	PQclear(result);
}

/* From 0 to 1; the same sequence of numbers in each run. */
static double
next_random(void)
{
	static uint64_t state = UINT64_C(0x9E3779B97F4A7C15);

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (double) (state >> 11) / (double) (UINT64_C(1) << 53);
}

/* Returns at due_ns, or on SIGTERM. */
static void
wait_until(uint64_t due_ns, bool busy)
{
	struct timespec when = {
		.tv_sec = (time_t) (due_ns / UINT64_C(1000000000)),
		.tv_nsec = (long) (due_ns % UINT64_C(1000000000))
	};

	if (busy)
	{
		while (clock_ns() < due_ns && !stopped)
			;
		return;
	}
	while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

/* One JSON key, with the mean and percentiles; sorts the times. */
static void
print_times(const char *key, float *times_us, size_t count)
{
	double		sum_us = 0;

	for (size_t i = 0; i < count; i++)
		sum_us += (double) times_us[i];
	qsort(times_us, count, sizeof(float), compare_times);
	printf(", \"%s\": {\"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"max\": %.1f}",
		   key, sum_us / (double) count, (double) times_us[count / 2],
		   (double) times_us[count * 9 / 10], (double) times_us[count * 99 / 100],
		   (double) times_us[count - 1]);
}

int
main(int argc, char **argv)
{
	Options		options = parse_options(argc, argv);
	float	   *took_us = allocate(STATEMENTS_MAX, sizeof(float));
	float	   *from_due_us = allocate(STATEMENTS_MAX, sizeof(float));
	struct sigaction action = {.sa_handler = stop};
	uint64_t	sent = 0;
	size_t		counted = 0;
	uint64_t	start_ns;
	uint64_t	end_ns;
	PGconn	   *pg;

	sigaction(SIGTERM, &action, NULL);
	prctl(PR_SET_TIMERSLACK, 1);	/* by default the kernel wakes a process up to 50 us late */
	pg = open_connection(&options);
	start_ns = clock_ns();
	end_ns = start_ns + WARM_UP_NS + (uint64_t) (options.seconds * 1e9);

	while (!stopped && counted < STATEMENTS_MAX)
	{
		uint64_t	due_ns = start_ns + sent * options.interval_ns;
		uint64_t	sent_ns;
		uint64_t	answered_ns;

		if (options.jitter)
			due_ns += (uint64_t) (next_random() * (double) options.interval_ns);
		if (due_ns >= end_ns)
			break;
		wait_until(due_ns, options.busy);
		if (stopped)
			break;
		sent_ns = clock_ns();
		run(pg, &options);
		answered_ns = clock_ns();
		sent++;
		if (due_ns < start_ns + WARM_UP_NS)
			continue;
		took_us[counted] = (float) (answered_ns - sent_ns) / 1000;
		from_due_us[counted] = (float) (answered_ns - due_ns) / 1000;
		counted++;
	}
	printf("{\"sent\": %" PRIu64 ", \"counted\": %zu", sent, counted);
	if (counted > 0)
	{
		print_times("took_us", took_us, counted);
		print_times("from_due_us", from_due_us, counted);
	}
	puts("}");
	PQfinish(pg);
	free(took_us);
	free(from_due_us);
	return 0;
}
