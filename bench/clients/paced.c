/*
 * paced.c
 *		--paced, and command `paced`: the time of deliveries while
 *		notifications are sent at a given rate.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * This program's senders notify, each one transaction at a time.  The k-th
 * notification is due at start + k / rate, whether or not earlier ones are
 * finished.  Its payload is its due time, which a listener subtracts from the
 * time at which it reads the notification.  So the wait for a free sender, or
 * for this program, is part of the measured time: senders that measure from
 * the actual send would send less to a server that stalls, and hide the stall.
 * The delay of the sends is printed as well (late_us).
 *
 * Without a rate every sender sends again as soon as it can: this finds the
 * saturation.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "listen.h"

/* Few, so that a sender that is due never waits behind many listeners. */
#define EVENTS_MAX 8

/* How long to wait for outstanding deliveries after the end. */
#define LINGER_NS UINT64_C(10000000000)

/*
 * Times by their logarithm: 64 buckets for each power of two, so that a
 * percentile is exact to 1.6 % with any number of times.
 */
#define BUCKETS_EACH 64
#define BUCKETS (59 * BUCKETS_EACH)

typedef struct Histogram
{
	uint64_t	total;
	uint64_t	max_ns;
	uint64_t	counts[BUCKETS];
} Histogram;

typedef struct Sender
{
	Connection	conn;
	bool		busy;
	uint64_t	due_ns;			/* due time of its current notification */
} Sender;

typedef struct Paced
{
	Sender	   *senders;
	int			sender_count;
	int			idle;			/* senders that are not busy */
	int			next;			/* where to begin to look for an idle one */
	int			timer_fd;
	uint64_t	armed_ns;		/* the time that the timer is set to */
	char	   *channel;
	const char *template;		/* the senders' statement; NULL: NOTIFY */
	double		interval_ns;	/* 0: as fast as possible */
	uint64_t	start_ns;
	uint64_t	end_ns;			/* nothing is due from this time on */
	uint64_t	sent;
	uint64_t	committed;
	uint64_t	delivered;
	uint64_t	last_ns;		/* time of the newest delivery */
	Histogram	delivery;
	Histogram	commit;
	Histogram	late;
} Paced;

static int
bucket_of(uint64_t ns)
{
	int			power;

	if (ns < BUCKETS_EACH)
		return (int) ns;
	power = 63 - __builtin_clzll(ns);	/* 6 or more */
	return (power - 5) * BUCKETS_EACH + (int) (ns >> (power - 6)) - BUCKETS_EACH;
}

/* The middle of a bucket. */
static double
bucket_ns(int bucket)
{
	int			shift = bucket / BUCKETS_EACH - 1;

	if (bucket < BUCKETS_EACH)
		return bucket;
	return ((double) (bucket % BUCKETS_EACH + BUCKETS_EACH) + 0.5) * (double) (UINT64_C(1) << shift);
}

static void
histogram_add(Histogram *histogram, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t	ns = to_ns > from_ns ? to_ns - from_ns : 0;

	histogram->total++;
	histogram->counts[bucket_of(ns)]++;
	if (ns > histogram->max_ns)
		histogram->max_ns = ns;
}

static double
percentile_us(const Histogram *histogram, double fraction)
{
	uint64_t	rank = (uint64_t) (fraction * (double) histogram->total);
	uint64_t	seen = 0;

	for (int i = 0; i < BUCKETS; i++)
	{
		seen += histogram->counts[i];
		if (seen > rank)
			return bucket_ns(i) / 1000.0;
	}
	return (double) histogram->max_ns / 1000.0;
}

static void
histogram_print(const char *key, const Histogram *histogram)
{
	printf(", \"%s\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",
		   key, percentile_us(histogram, 0.5), percentile_us(histogram, 0.9),
		   percentile_us(histogram, 0.99), percentile_us(histogram, 0.999),
		   (double) histogram->max_ns / 1000.0);
}

/* Notes one notification (a NotificationHandler). */
static void
note(void *context, const Connection *conn, const char *payload, uint64_t now_ns)
{
	Paced	   *paced = context;
	char	   *rest;
	uint64_t	due_ns = strtoull(payload, &rest, 10);

	(void) conn;
	if (rest == payload || due_ns < paced->start_ns)
		return;					/* from another sender, or an earlier run */
	paced->delivered++;
	paced->last_ns = now_ns;
	histogram_add(&paced->delivery, due_ns, now_ns);
}

/* When the next notification is due; UINT64_MAX after the last. */
static uint64_t
next_due(const Paced *paced, uint64_t now_ns)
{
	uint64_t	due_ns = now_ns;

	if (paced->interval_ns > 0)
		due_ns = paced->start_ns + (uint64_t) ((double) paced->sent * paced->interval_ns);
	return due_ns < paced->end_ns ? due_ns : UINT64_MAX;
}

/* Sends the notifications that are due, as long as a sender is idle. */
static void
send_due(Paced *paced)
{
	uint64_t	now_ns = clock_ns();
	uint64_t	due_ns;

	while (paced->idle > 0 && (due_ns = next_due(paced, now_ns)) <= now_ns)
	{
		Sender	   *sender;
		char		moment[24];
		char		sql[320];

		do
		{
			sender = &paced->senders[paced->next];
			paced->next = (paced->next + 1) % paced->sender_count;
		} while (sender->busy);
		snprintf(moment, sizeof(moment), "%" PRIu64, due_ns);
		if (paced->template)
			fill_in(sql, sizeof(sql), paced->template, moment);
		else
			snprintf(sql, sizeof(sql), "NOTIFY %s, '%s'", paced->channel, moment);
		sender->busy = true;
		sender->due_ns = due_ns;
		paced->idle--;
		paced->sent++;
		if (!connection_query(&sender->conn, sql))
			die("a sender's connection does not take the query");
		histogram_add(&paced->late, due_ns, now_ns);
		now_ns = clock_ns();
	}
}

/* Sets the timer to the time when the next notification is due, if a sender is idle. */
static void
arm_timer(Paced *paced)
{
	uint64_t	due_ns = paced->idle > 0 ? next_due(paced, paced->armed_ns) : UINT64_MAX;
	struct itimerspec when = {.it_value = {
		.tv_sec = (time_t) (due_ns / UINT64_C(1000000000)),
		.tv_nsec = (long) (due_ns % UINT64_C(1000000000))
	}};

	if (due_ns == UINT64_MAX || due_ns == paced->armed_ns || paced->interval_ns == 0)
		return;
	paced->armed_ns = due_ns;
	if (timerfd_settime(paced->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
		die("timerfd_settime: %s", strerror(errno));
}

/* Reads a sender's socket; after the commit the sender is idle again. */
static void
read_sender(Client *client, Paced *paced, Sender *sender)
{
	uint64_t	before = sender->conn.ready_count;

	connection_read(client, &sender->conn);
	if (!sender->conn.open)
		die("the server closed a sender's connection");
	if (sender->conn.ready_count == before)
		return;
	histogram_add(&paced->commit, sender->due_ns, clock_ns());
	sender->busy = false;
	paced->idle++;
	paced->committed++;
	if (client->batch)
		batch_add(client->batch, sender->due_ns);
}

/* Opens the connections that send. */
void
paced_open(Client *client)
{
	const Options *options = &client->options;
	Options		server = *options;
	Paced	   *paced = allocate(1, sizeof(Paced));

	if (options->send_conninfo)
		server.conninfo = options->send_conninfo;
	client->paced = paced;
	paced->sender_count = options->paced_senders;
	paced->template = options->send;
	paced->senders = allocate((size_t) paced->sender_count, sizeof(Sender));
	for (int i = 0; i < paced->sender_count; i++)
	{
		Connection *conn = &paced->senders[i].conn;
		struct epoll_event event = {.events = EPOLLIN,.data.ptr = conn};

		connection_open(conn, (uint32_t) (options->connections + i), &server);
		if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
			die("epoll_ctl: %s", strerror(errno));
	}
	paced->channel = channel_name(&paced->senders[0].conn, options->channel, options->start);
}

void
paced_close(Client *client)
{
	Paced	   *paced = client->paced;

	if (!paced)
		return;
	for (int i = 0; i < paced->sender_count; i++)
	{
		PQfinish(paced->senders[i].conn.pg);
		free(paced->senders[i].conn.partial);
	}
	PQfreemem(paced->channel);
	free(paced->senders);
	free(paced);
}

/* Resets all counts, and starts the timer and the time. */
static void
begin(Client *client, Paced *paced, double seconds, double rate)
{
	struct epoll_event event = {.events = EPOLLIN,.data.ptr = paced};

	paced->idle = paced->sender_count;
	paced->sent = paced->committed = paced->delivered = paced->last_ns = 0;
	paced->delivery = paced->commit = paced->late = (Histogram) {0};
	paced->armed_ns = 0;
	client->on_notification = note;
	client->context = paced;

	/* In the timer's event the pointer is `paced`. */
	paced->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (paced->timer_fd < 0 || epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, paced->timer_fd, &event) != 0)
		die("timer: %s", strerror(errno));
	paced->interval_ns = rate > 0 ? 1e9 / rate : 0;
	paced->start_ns = clock_ns();
	paced->end_ns = paced->start_ns + (uint64_t) (seconds * 1e9);
}

static void
handle_event(Client *client, Paced *paced, void *source)
{
	Connection *conn = source;

	if (source == paced)
	{
		uint64_t	expirations;

		if (read(paced->timer_fd, &expirations, sizeof(expirations)) < 0 && errno != EAGAIN)
			die("timer: %s", strerror(errno));
	}
	else if (source == client->batch)
		batch_read(client->batch);
	else if (conn->number >= (uint32_t) client->options.connections)
		read_sender(client, paced, &paced->senders[conn->number - (uint32_t) client->options.connections]);
	else if (conn->open)
		connection_read(client, conn);
}

static void
print_result(const Client *client, const Paced *paced)
{
	uint64_t	expected = paced->sent * (uint64_t) client->options.deliveries;

	printf("{\"senders\": %d, \"listeners\": %d, \"sent\": %" PRIu64 ", \"committed\": %" PRIu64
		   ", \"expected\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"closed\": %d, \"elapsed_s\": %.6f",
		   paced->sender_count, client->options.connections, paced->sent, paced->committed,
		   expected, paced->delivered, client->closed,
		   paced->delivered > 0 ? (double) (paced->last_ns - paced->start_ns) / 1e9 : 0.0);
	histogram_print("delivery_us", &paced->delivery);
	histogram_print("commit_us", &paced->commit);
	histogram_print("late_us", &paced->late);
	puts("}");
	fflush(stdout);
}

/*
 * Notifies the listening connections for `seconds`, waits until all is
 * delivered, and prints one JSON line; times in microseconds.
 */
void
paced_run(Client *client, double seconds, double rate)
{
	const Options *options = &client->options;
	Paced	   *paced = client->paced;
	uint64_t	expected = UINT64_MAX;

	begin(client, paced, seconds, rate);
	while (paced->delivered < expected || paced->idle < paced->sender_count)
	{
		struct epoll_event events[EVENTS_MAX];
		uint64_t	now_ns;
		int			n;

		send_due(paced);
		arm_timer(paced);
		n = epoll_wait(client->epoll_fd, events, EVENTS_MAX, options->pull_every_ms > 0 || client->batch ? 1 : 10);
		for (int i = 0; i < n; i++)
		{
			handle_event(client, paced, events[i].data.ptr);
			send_due(paced);
		}
		now_ns = clock_ns();
		pull_poll(client, now_ns);
		if (client->batch)
			batch_send(client->batch, now_ns);
		if (next_due(paced, now_ns) == UINT64_MAX)
			expected = paced->sent * (uint64_t) options->deliveries;
		if (client->closed > 0 || now_ns > paced->end_ns + LINGER_NS)
			break;
	}
	close(paced->timer_fd);
	print_result(client, paced);
}
