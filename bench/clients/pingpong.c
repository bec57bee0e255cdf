/*
 * pingpong.c
 *		Two connections that notify each other in turn, as fast as possible.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * The first sends NOTIFY on channel "ping"; the second receives it and answers on
 * channel "pong".  A round trip ends when the first receives the answer.  Prints one
 * line of JSON.  The PG* environment determines the server.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <libpq-fe.h>

#include "client.h"

#define TIMEOUT_MS 10000
#define ROUND_TRIPS_MAX 4000000
#define WARM_UP 50

static void
run(PGconn *pg, const char *sql)
{
	PGresult   *result = PQexec(pg, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("%s: %s", sql, PQerrorMessage(pg));
	PQclear(result);
}

/* A connection that listens to a channel. */
static PGconn *
open_listener(const char *listen)
{
	PGconn	   *pg = PQconnectdb("");

	if (PQstatus(pg) != CONNECTION_OK)
		die("cannot connect: %s", PQerrorMessage(pg));
	run(pg, listen);
	return pg;
}

/* Returns when a notification has arrived. */
static void
wait_for_notification(PGconn *pg)
{
	PGnotify   *notification;

	while ((notification = PQnotifies(pg)) == NULL)
	{
		struct pollfd socket = {.fd = PQsocket(pg),.events = POLLIN};
		int			ready = poll(&socket, 1, TIMEOUT_MS);

		if (ready == 0)
			die("no notification within %d ms", TIMEOUT_MS);
		if (ready < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));
		if (!PQconsumeInput(pg))
			die("connection lost: %s", PQerrorMessage(pg));
	}
	PQfreemem(notification);
}

static void
round_trip(PGconn *first, PGconn *second)
{
	run(first, "NOTIFY ping");
	wait_for_notification(second);
	run(second, "NOTIFY pong");
	wait_for_notification(first);
}

int
main(int argc, char **argv)
{
	float	   *times_us = allocate(ROUND_TRIPS_MAX, sizeof(float));
	double		seconds;
	size_t		count = 0;
	uint64_t	begin_ns;
	uint64_t	now_ns;
	PGconn	   *first;
	PGconn	   *second;

	if (argc != 3 || strcmp(argv[1], "--seconds") != 0)
		die("usage: pingpong --seconds SECONDS");
	seconds = number_above_zero("seconds", argv[2]);
	first = open_listener("LISTEN pong");
	second = open_listener("LISTEN ping");
	for (int i = 0; i < WARM_UP; i++)
		round_trip(first, second);

	begin_ns = now_ns = clock_ns();
	while ((double) (now_ns - begin_ns) < seconds * 1e9 && count < ROUND_TRIPS_MAX)
	{
		uint64_t	sent_ns = now_ns;

		round_trip(first, second);
		now_ns = clock_ns();
		times_us[count++] = (float) (now_ns - sent_ns) / 1000;
	}
	qsort(times_us, count, sizeof(float), compare_times);
	printf("{\"round_trips\": %zu, \"round_trips_per_s\": %.1f, \"round_trip_us_p50\": %.1f, "
		   "\"round_trip_us_p99\": %.1f}\n", count, (double) count * 1e9 / (double) (now_ns - begin_ns),
		   times_us[count / 2], times_us[count - 1 - count / 100]);
	PQfinish(first);
	PQfinish(second);
	free(times_us);
	return 0;
}
