/*
 * commands.c
 *		The lines that the listening client takes on stdin, and its answers.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *	count				answers with the counts at once
 *	wait TOTAL MS		answers when TOTAL notifications have come over all
 *						connections, at the latest after MS milliseconds; the
 *						answer's waited_us says how long that took
 *	quit				ends the program, as the end of the input does
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listen.h"

static void print_counts(const Client *client, uint64_t waited_ns);
static bool run_command(Client *client, const char *line);

/* Reads what stdin has, and runs each whole line.  Returns false to end. */
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

/* Answers the `wait` under way if its time has come. */
void
commands_check_wait(Client *client, uint64_t now_ns)
{
	if (!client->waiting)
		return;
	if (client->notifications < client->wait_total && now_ns < client->wait_deadline_ns)
		return;
	client->waiting = false;
	print_counts(client, now_ns - client->wait_start_ns);
}

static bool
run_command(Client *client, const char *line)
{
	uint64_t	total;
	uint64_t	wait_ms;

	if (strcmp(line, "quit") == 0)
		return false;
	if (strcmp(line, "count") == 0)
		print_counts(client, 0);
	else if (sscanf(line, "wait %" SCNu64 " %" SCNu64, &total, &wait_ms) == 2)
	{
		client->waiting = true;
		client->wait_total = total;
		client->wait_start_ns = clock_ns();
		client->wait_deadline_ns = client->wait_start_ns + wait_ms * 1000000;
		commands_check_wait(client, client->wait_start_ns);
	}
	else
		die("unknown command: %s", line);
	return true;
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
