/*
 * commands.c
 *		The listening client's commands, lines on stdin, and its answers.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *	count				answers with the counts at once
 *	wait TOTAL MS		answers when all connections together have received TOTAL
 *						notifications, or after MS milliseconds; the answer's
 *						waited_us is the time of the wait
 *	query MS SQL		sends SQL over every connection, and answers as `wait` when
 *						all have answered it (not with --heartbeat)
 *	ask TOTAL MS SQL	the same, but also waits for TOTAL further notifications or
 *						rows; waited_us begins when SQL is sent
 *	reset				sets the counts to 0, and the state of --check-sequence
 *	paced SECONDS RATE	sends at that rate (0: as fast as possible) from the
 *						connections of --paced-senders, and answers, as --paced
 *						does, when all has been delivered
 *	stop				stops reading the sockets: server processes with something
 *						to send must wait
 *	start				reads the sockets again
 *	quit				ends the program, as the end of the input does
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "listen.h"

static void print_counts(const Client *client, uint64_t waited_ns);
static bool run_command(Client *client, const char *line);
static void begin_wait(Client *client, uint64_t start_ns, uint64_t total, uint64_t ready, uint64_t wait_ms);
static uint64_t answers(const Client *client);
static uint64_t query_all(const Client *client, const char *sql);
static void reset(Client *client);
static void run_paced(Client *client, double seconds, double rate);
static void watch_sockets(Client *client, bool watched);

/* Reads from stdin, and runs each whole line.  Returns false to end the program. */
bool
commands_read(Client *client)
{
	static char line[256];
	static size_t used;
	ssize_t		size = read(STDIN_FILENO, line + used, sizeof(line) - 1 - used);
	char	   *newline;

	if (size < 0)
		return errno == EINTR || errno == EAGAIN;
	if (size == 0)
		return false;
	used += (size_t) size;
	line[used] = 0;
	while ((newline = strchr(line, '\n')) != NULL)
	{
		*newline = 0;
		if (!run_command(client, line))
			return false;
		used -= (size_t) (newline + 1 - line);
		memmove(line, newline + 1, used + 1);
	}
	if (used == sizeof(line) - 1)
		die("command too long");
	return true;
}

/* Answers the current wait, if there is one, when it is complete or its time is over. */
void
commands_check_wait(Client *client, uint64_t now_ns)
{
	if (!client->waiting)
		return;
	if ((client->notifications < client->wait_total || answers(client) < client->wait_ready) &&
		now_ns < client->wait_deadline_ns)
		return;
	client->waiting = false;
	print_counts(client, now_ns - client->wait_start_ns);
}

static bool
run_command(Client *client, const char *line)
{
	uint64_t	total;
	uint64_t	wait_ms;
	uint64_t	now_ns = clock_ns();
	double		seconds;
	double		rate;
	int			sql = 0;

	if (strcmp(line, "quit") == 0)
		return false;
	if (strcmp(line, "count") == 0)
		print_counts(client, 0);
	else if (sscanf(line, "wait %" SCNu64 " %" SCNu64, &total, &wait_ms) == 2)
		begin_wait(client, now_ns, total, 0, wait_ms);
	else if (sscanf(line, "query %" SCNu64 " %n", &wait_ms, &sql) == 1)
		begin_wait(client, now_ns, 0, answers(client) + query_all(client, line + sql), wait_ms);
	else if (sscanf(line, "ask %" SCNu64 " %" SCNu64 " %n", &total, &wait_ms, &sql) == 2)
		begin_wait(client, now_ns, client->notifications + total,
				   answers(client) + query_all(client, line + sql), wait_ms);
	else if (strcmp(line, "reset") == 0)
	{
		reset(client);
		print_counts(client, 0);
	}
	else if (sscanf(line, "paced %lf %lf", &seconds, &rate) == 2)
		run_paced(client, seconds, rate);
	else if (strcmp(line, "stop") == 0 || strcmp(line, "start") == 0)
	{
		watch_sockets(client, strcmp(line, "start") == 0);
		print_counts(client, 0);
	}
	else
		die("unknown command: %s", line);
	return true;
}

static void
begin_wait(Client *client, uint64_t start_ns, uint64_t total, uint64_t ready, uint64_t wait_ms)
{
	client->waiting = true;
	client->wait_total = total;
	client->wait_ready = ready;
	client->wait_start_ns = start_ns;
	client->wait_deadline_ns = client->wait_start_ns + wait_ms * 1000000;
	commands_check_wait(client, clock_ns());
}

/* A closed connection counts as an answer: it sends none. */
static uint64_t
answers(const Client *client)
{
	return client->ready_count + (uint64_t) client->closed;
}

/* Returns the number of connections that it was sent over. */
static uint64_t
query_all(const Client *client, const char *sql)
{
	uint64_t	sent = 0;

	for (int i = 0; i < client->options.connections; i++)
	{
		Connection *conn = &client->listeners[i];

		if (conn->open && !connection_query(conn, sql))
			die("connection %u does not take the query", conn->number);
		sent += conn->open;
	}
	return sent;
}

static void
reset(Client *client)
{
	for (int i = 0; i < client->options.connections; i++)
	{
		client->listeners[i].notifications = 0;
		client->listeners[i].bytes = 0;
	}
	client->notifications = 0;
	client->bytes = 0;
	if (client->options.senders > 0)
		sequence_reset(client->context, client->options.connections);
}

/* Reads no command while it runs. */
static void
run_paced(Client *client, double seconds, double rate)
{
	NotificationHandler on_notification = client->on_notification;
	void	   *context = client->context;
	struct epoll_event input = {.events = EPOLLIN,.data.ptr = NULL};

	if (!client->paced || seconds <= 0 || rate < 0)
		die("paced takes seconds and a rate, and --paced-senders");
	if (epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, STDIN_FILENO, NULL) != 0)
		die("epoll_ctl: %s", strerror(errno));
	paced_run(client, seconds, rate);
	client->on_notification = on_notification;
	client->context = context;
	if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &input) != 0)
		die("epoll_ctl: %s", strerror(errno));
}

static void
watch_sockets(Client *client, bool watched)
{
	if (client->stopped != watched)
		return;
	client->stopped = !watched;
	for (int i = 0; i < client->options.connections; i++)
	{
		Connection *conn = &client->listeners[i];
		struct epoll_event event = {.events = EPOLLIN,.data.ptr = conn};

		if (conn->open &&
			epoll_ctl(client->epoll_fd, watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, conn->fd, &event) != 0)
			die("epoll_ctl: %s", strerror(errno));
	}
}

static void
print_counts(const Client *client, uint64_t waited_ns)
{
	uint64_t	min = UINT64_MAX;
	uint64_t	max = 0;

	for (int i = 0; i < client->options.connections; i++)
	{
		uint64_t	count = client->listeners[i].notifications;

		min = count < min ? count : min;
		max = count > max ? count : max;
	}
	printf("{\"notifications\": %" PRIu64 ", \"min\": %" PRIu64 ", \"max\": %" PRIu64
		   ", \"bytes\": %" PRIu64 ", \"closed\": %d, \"listen_us\": %" PRIu64
		   ", \"waited_us\": %" PRIu64,
		   client->notifications, min, max, client->bytes, client->closed, client->listen_us,
		   waited_ns / 1000);
	if (client->options.senders > 0)
		sequence_print(client->context);
	puts("}");
	fflush(stdout);
}
