/*
 * probe.c
 *		--probe: the time of a NOTIFY until its commit, and until the first
 *		and the last listener receive it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * One more connection sends `NOTIFY channel, '<number>'` every interval, but
 * only after the previous one has committed.  All times are from the moment
 * before send().
 *
 * The notifier's socket is checked every few reads: in epoll's order the
 * commit's answer would be read only after the listeners' sockets that were
 * ready before it, and the client's own work would count as the server's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "listen.h"

#define EVENTS_MAX 4

/* How long to wait for a commit, or for outstanding deliveries, before giving up. */
#define LINGER_NS UINT64_C(5000000000)

typedef struct Shot
{
	uint64_t	sent_ns;
	uint64_t	commit_ns;
	uint64_t	first_ns;
	uint64_t	last_ns;
	uint32_t	heard;
} Shot;

typedef struct Probe
{
	Connection	notifier;
	char	   *channel;
	Shot	   *shots;
	int			count;
	uint32_t	listeners;
	int			sent;
	int			committed;
	int			complete;		/* shots that every listener has received */
	uint64_t	next_ns;		/* when to send the next */
} Probe;

static void
note(void *context, const Connection *conn, const char *payload, uint64_t now_ns)
{
	Probe	   *probe = context;
	char	   *rest;
	long		number = strtol(payload, &rest, 10);
	Shot	   *shot;

	(void) conn;
	if (rest == payload || number < 0 || number >= probe->sent)
		return;					/* another client's notification */
	shot = &probe->shots[number];
	if (shot->heard++ == 0)
		shot->first_ns = now_ns;
	if (shot->heard == probe->listeners)
	{
		shot->last_ns = now_ns;
		probe->complete++;
	}
}

static void
send_one(Probe *probe, uint64_t interval_ns)
{
	char		sql[320];

	snprintf(sql, sizeof(sql), "NOTIFY %s, '%d'", probe->channel, probe->sent);
	probe->shots[probe->sent].sent_ns = clock_ns();
	probe->next_ns = probe->shots[probe->sent].sent_ns + interval_ns;
	probe->sent++;
	if (!connection_query(&probe->notifier, sql))
		die("the notifier's connection does not take the query");
}

/* Reads the notifier's socket, and notes the time if a commit is answered. */
static void
check_commit(Client *client, Probe *probe)
{
	if (probe->committed == probe->sent)
		return;
	connection_read(client, &probe->notifier);
	if (!probe->notifier.open)
		die("the server closed the notifier's connection");
	if (probe->notifier.ready_count == (uint64_t) probe->sent)
	{
		probe->shots[probe->committed].commit_ns = clock_ns();
		probe->committed++;
	}
}

/* One JSON key: percentiles and the raw microseconds of one of the times. */
static void
print_times(const Probe *probe, const char *key, size_t offset)
{
	float	   *times = allocate((size_t) probe->count, sizeof(float));
	int			n = 0;

	printf(", \"%s\": {\"raw\": [", key);
	for (int i = 0; i < probe->sent; i++)
	{
		uint64_t	end = *(const uint64_t *) ((const char *) &probe->shots[i] + offset);

		if (end == 0)
			continue;			/* not reached */
		times[n] = (float) (end - probe->shots[i].sent_ns) / 1000;
		printf("%s%.1f", n > 0 ? ", " : "", (double) times[n]);
		n++;
	}
	qsort(times, (size_t) n, sizeof(float), compare_times);
	if (n > 0)
		printf("], \"p50\": %.1f, \"p99\": %.1f}", (double) times[n / 2], (double) times[n * 99 / 100]);
	else
		printf("], \"p50\": null, \"p99\": null}");
	free(times);
}

/*
 * Sends options.probe_count notifications to the listening connections, and
 * prints the times in microseconds as one JSON line.
 */
void
probe_run(Client *client)
{
	const Options *options = &client->options;
	uint64_t	interval_ns = (uint64_t) options->interval_ms * 1000000;
	uint64_t	end_ns = UINT64_MAX;
	Probe		probe = {.count = options->probe_count,.listeners = (uint32_t) options->connections};
	struct epoll_event event = {.events = EPOLLIN,.data.ptr = &probe.notifier};

	probe.shots = allocate((size_t) probe.count, sizeof(Shot));
	connection_open(&probe.notifier, (uint32_t) options->connections, options);
	probe.channel = channel_name(&probe.notifier, options->channel, options->start);
	epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, probe.notifier.fd, &event);
	client->on_notification = note;
	client->context = &probe;
	probe.next_ns = clock_ns() + interval_ns;

	while (probe.complete < probe.count && clock_ns() < end_ns && client->closed == 0)
	{
		struct epoll_event events[EVENTS_MAX];
		uint64_t	now = clock_ns();
		bool		due = probe.sent < probe.count && probe.committed == probe.sent;
		int			wait_ms = due && probe.next_ns > now ? (int) ((probe.next_ns - now) / 1000000) : 100;
		int			n;

		if (due && wait_ms == 0)
			wait_ms = 1;
		if (due && now >= probe.next_ns)
		{
			send_one(&probe, interval_ns);
			end_ns = probe.next_ns + LINGER_NS;
		}
		n = epoll_wait(client->epoll_fd, events, EVENTS_MAX, wait_ms);
		check_commit(client, &probe);
		for (int i = 0; i < n; i++)
		{
			Connection *conn = events[i].data.ptr;

			if (conn != NULL && conn != &probe.notifier && conn->open)
				connection_read(client, conn);
		}
	}

	printf("{\"listeners\": %u, \"sent\": %d, \"complete\": %d, \"closed\": %d",
		   probe.listeners, probe.sent, probe.complete, client->closed);
	print_times(&probe, "commit_us", offsetof(Shot, commit_ns));
	print_times(&probe, "first_us", offsetof(Shot, first_ns));
	print_times(&probe, "last_us", offsetof(Shot, last_ns));
	puts("}");
	fflush(stdout);
	PQfreemem(probe.channel);
	PQfinish(probe.notifier.pg);
	free(probe.notifier.partial);
	free(probe.shots);
}
