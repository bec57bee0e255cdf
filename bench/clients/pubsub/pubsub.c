/*
 * pubsub.c
 *		Publishes as fast as the server answers, and counts what subscribers receive.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * Two threads with an epoll loop each: one for all publishers, one for all
 * subscribers.  Each publisher sends a block of --depth requests, waits until
 * they are answered, and sends the next block: with a depth of 1 that is request
 * and reply.  When the time is over, and all replies have arrived, the program
 * waits until the subscribers have everything; the rate is over the time until
 * that moment.
 *
 * Before that, each publisher sends one block that is not counted: a new backend
 * fills its caches during its first statement.
 *
 * Prints `ready` when all are connected and warm, waits for a line on stdin,
 * publishes, prints the figures as JSON, and ends with its input.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pubsub.h"

#define EVENTS_MAX		256
#define DEPTH_MAX		10000
#define FILES_BESIDE_CONNECTIONS 32
#define TICK_MS			50
#define SETTLE_NS		50000000	/* time to wait for messages beyond those published */

typedef struct Subscribers
{
	const Options *options;
	Connection *connections;
	int			epoll_fd;
	ReadBuffer *buffer;
	_Atomic uint64_t notifications;
	_Atomic uint64_t newest_ns; /* when the last of them was read */
	_Atomic int closed;
	_Atomic bool stop;
} Subscribers;

typedef struct Publishers
{
	const Options *options;
	Connection *connections;
	int			epoll_fd;
	ReadBuffer *buffer;
	char	   *block;
	size_t		block_size;
	uint32_t	block_replies;
	int			under_way;		/* connections that wait for replies */
	uint64_t	published;
} Publishers;

/* Counts and times at one moment. */
typedef struct Reading
{
	uint64_t	time_ns;
	uint64_t	published;
	uint64_t	received;
	double		cpu_publishers_s;
	double		cpu_subscribers_s;
} Reading;


static double
thread_cpu_s(pthread_t thread)
{
	clockid_t	clock;

	if (pthread_getcpuclockid(thread, &clock) != 0)
		die("cannot read the CPU time of a thread");
	return (double) read_clock_ns(clock) / 1e9;
}

/* Opens connections, all in one epoll set. */
static Connection *
open_connections(const Options *options, int count, bool subscribe, ReadBuffer *buffer, int *epoll_fd)
{
	Connection *connections = allocate((size_t) count, sizeof(Connection));

	*epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (*epoll_fd < 0)
		die("epoll_create1: %s", strerror(errno));
	for (int i = 0; i < count; i++)
	{
		struct epoll_event event = {.events = EPOLLIN,.data.ptr = &connections[i]};

		connection_open(&connections[i], options, buffer);
		if (subscribe)
			connection_subscribe(&connections[i], options, buffer);
		if (epoll_ctl(*epoll_fd, EPOLL_CTL_ADD, connections[i].fd, &event) != 0)
			die("epoll_ctl: %s", strerror(errno));
	}
	return connections;
}

/* ---- subscribers ---- */

static void *
subscribers_run(void *arg)
{
	Subscribers *all = arg;
	struct epoll_event events[EVENTS_MAX];

	while (!atomic_load(&all->stop))
	{
		int			n = epoll_wait(all->epoll_fd, events, EVENTS_MAX, TICK_MS);
		uint64_t	notifications = 0;

		for (int i = 0; i < n; i++)
		{
			Connection *conn = events[i].data.ptr;

			notifications += connection_read(conn, all->options->protocol, all->buffer, false).notifications;
			if (!conn->open)
				atomic_fetch_add(&all->closed, 1);
		}
		if (notifications > 0)
		{
			atomic_store(&all->newest_ns, clock_ns());
			atomic_fetch_add(&all->notifications, notifications);
		}
	}
	return NULL;
}

/* Waits until all have received `published`, the time is over, or a connection is closed. */
static void
subscribers_wait(Subscribers *all, uint64_t published)
{
	uint64_t	expected = published * (uint64_t) all->options->subscribers;
	uint64_t	deadline_ns = clock_ns() + (uint64_t) (all->options->drain_s * 1e9);
	struct timespec pause = {.tv_nsec = 100000};

	while (atomic_load(&all->notifications) < expected && clock_ns() < deadline_ns &&
		   atomic_load(&all->closed) == 0)
		nanosleep(&pause, NULL);
	pause.tv_nsec = SETTLE_NS;
	nanosleep(&pause, NULL);
}

/* ---- publishers ---- */

static void
make_block(Publishers *all)
{
	const Protocol *protocol = all->options->protocol;
	size_t		depth = (size_t) all->options->depth;

	all->block = allocate(depth + 1, MESSAGE_MAX);
	for (size_t i = 0; i < depth; i++)
		all->block_size += protocol->publish(all->block + all->block_size);
	if (protocol->block_end)
		all->block_size += protocol->block_end(all->block + all->block_size);
	all->block_replies = protocol->one_reply_a_block ? 1 : (uint32_t) depth;
}

static void
send_block(Publishers *all, Connection *conn)
{
	conn->replies_due = all->block_replies;
	all->published += (uint64_t) all->options->depth;
	all->under_way++;
	connection_send(conn, all->block, all->block_size);
}

/* Each sends at least one block; after the deadline none sends another. */
static void
publishers_run(Publishers *all, uint64_t deadline_ns)
{
	struct epoll_event events[EVENTS_MAX];

	for (int i = 0; i < all->options->publishers; i++)
		send_block(all, &all->connections[i]);
	while (all->under_way > 0)
	{
		int			n = epoll_wait(all->epoll_fd, events, EVENTS_MAX, -1);
		bool		over = clock_ns() >= deadline_ns;

		for (int i = 0; i < n; i++)
		{
			Connection *conn = events[i].data.ptr;
			uint64_t	replies = connection_read(conn, all->options->protocol, all->buffer, false).replies;

			if (!conn->open)
				die("the server closed a publisher's connection");
			if (replies > conn->replies_due)
				die("more replies than requests");
			conn->replies_due -= (uint32_t) replies;
			if (replies > 0 && conn->replies_due == 0)
			{
				all->under_way--;
				if (!over)
					send_block(all, conn);
			}
		}
	}
}

/* ---- the program ---- */

static Reading
take_reading(const Publishers *publishers, const Subscribers *subscribers, pthread_t subscribers_thread)
{
	return (Reading) {
		.time_ns = clock_ns(),
		.published = publishers->published,
		.received = atomic_load(&subscribers->notifications),
		.cpu_publishers_s = thread_cpu_s(pthread_self()),
		.cpu_subscribers_s = thread_cpu_s(subscribers_thread),
	};
}

/* Whether each subscriber has received everything once, including the messages before the start. */
static bool
all_delivered(const Publishers *publishers, const Subscribers *subscribers)
{
	for (int i = 0; i < subscribers->options->subscribers; i++)
		if (subscribers->connections[i].notifications != publishers->published)
			return false;
	return atomic_load(&subscribers->closed) == 0;
}

static void
run(const Options *options)
{
	Subscribers subscribers = {.options = options,.buffer = read_buffer_create()};
	Publishers	publishers = {.options = options,.buffer = read_buffer_create()};
	pthread_t	thread;
	char		line[16];
	Reading		start;
	Reading		published;
	Reading		end;
	uint64_t	newest_ns;

	subscribers.connections = open_connections(options, options->subscribers, true, subscribers.buffer,
											   &subscribers.epoll_fd);
	publishers.connections = open_connections(options, options->publishers, false, publishers.buffer,
											  &publishers.epoll_fd);
	make_block(&publishers);
	if (pthread_create(&thread, NULL, subscribers_run, &subscribers) != 0)
		die("cannot create a thread");
	publishers_run(&publishers, 0);
	subscribers_wait(&subscribers, publishers.published);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return;

	start = take_reading(&publishers, &subscribers, thread);
	publishers_run(&publishers, start.time_ns + (uint64_t) (options->seconds * 1e9));
	published = take_reading(&publishers, &subscribers, thread);
	subscribers_wait(&subscribers, publishers.published);
	end = take_reading(&publishers, &subscribers, thread);
	newest_ns = atomic_load(&subscribers.newest_ns);
	end.time_ns = newest_ns > published.time_ns ? newest_ns : published.time_ns;
	atomic_store(&subscribers.stop, true);
	pthread_join(thread, NULL);

	printf("{\"published\": %" PRIu64 ", \"received\": %" PRIu64 ", \"closed\": %d, \"delivered\": %s"
		   ", \"publishing_s\": %.6f, \"elapsed_s\": %.6f, \"cpu_publishers_s\": %.6f"
		   ", \"cpu_subscribers_s\": %.6f}\n",
		   end.published - start.published, end.received - start.received,
		   atomic_load(&subscribers.closed),
		   all_delivered(&publishers, &subscribers) ? "true" : "false",
		   (double) (published.time_ns - start.time_ns) / 1e9,
		   (double) (end.time_ns - start.time_ns) / 1e9,
		   published.cpu_publishers_s - start.cpu_publishers_s, end.cpu_subscribers_s - start.cpu_subscribers_s);
	fflush(stdout);
	(void) fgets(line, sizeof(line), stdin);
}

static const Protocol *
find_protocol(const char *name)
{
	for (const Protocol *protocol = protocols; protocol->name; protocol++)
		if (strcmp(protocol->name, name) == 0)
			return protocol;
	die("no such protocol: %s", name);
}

int
main(int argc, char **argv)
{
	static const struct option known[] = {
		{"protocol", required_argument, NULL, 'o'},
		{"address", required_argument, NULL, 'a'},
		{"publishers", required_argument, NULL, 'p'},
		{"subscribers", required_argument, NULL, 's'},
		{"depth", required_argument, NULL, 'd'},
		{"seconds", required_argument, NULL, 't'},
		{"drain", required_argument, NULL, 'w'},
		{NULL, 0, NULL, 0}
	};
	Options		options = {.publishers = 1,.subscribers = 1,.depth = 1,.seconds = 1,.drain_s = 60};
	int			index = 0;
	int			letter;

	while ((letter = getopt_long(argc, argv, "", known, &index)) != -1)
	{
		const char *name = known[index].name;

		switch (letter)
		{
			case 'o':
				options.protocol = find_protocol(optarg);
				break;
			case 'a':
				options.address = optarg;
				break;
			case 'p':
				options.publishers = whole_number(name, optarg, 1, 100000);
				break;
			case 's':
				options.subscribers = whole_number(name, optarg, 0, 100000);
				break;
			case 'd':
				options.depth = whole_number(name, optarg, 1, DEPTH_MAX);
				break;
			case 't':
				options.seconds = number_above_zero(name, optarg);
				break;
			case 'w':
				options.drain_s = number_above_zero(name, optarg);
				break;
			default:
				return 2;
		}
	}
	if (!options.protocol || !options.address || optind < argc)
		die("--protocol postgres|select|redis|nats and --address PATH or IP:PORT are needed");
	raise_file_limit(options.publishers + options.subscribers + FILES_BESIDE_CONNECTIONS);
	run(&options);
	return 0;
}
