/*
 * listen.c
 *		Holds many connections that LISTEN, and counts what they receive.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * See usage() for the options and commands.c for the commands on stdin.
 * Prints `ready` when every LISTEN is done; the load must begin after that.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "listen.h"

#define EVENTS_MAX 256
#define FILES_BESIDE_CONNECTIONS 32
#define NUMBER_MAX 10000000

static void
usage(void)
{
	puts("Usage: listen [OPTION]...\n"
		 "  --connections N        connections that LISTEN (1)\n"
		 "  --channel NAME         %d in it is the channel's number (channel_1)\n"
		 "  --channels-each M      channels per connection (1)\n"
		 "  --start NUMBER         number of the first channel (0); connection i has\n"
		 "                         the M channels from NUMBER + i * M\n"
		 "  --conninfo STRING      as for psql; the PG* environment completes it\n"
		 "  --heartbeat SECONDS    each connection sends SELECT 1 that often\n"
		 "  --check-sequence N     payloads are sender:number of N senders; count what\n"
		 "                         is missing, duplicated and out of order\n"
		 "  --probe COUNT          send COUNT notifications, print latencies, end\n"
		 "  --interval-ms MS       time between two of them (20)\n"
		 "  --paced SECONDS        send so long, print how long deliveries took, end\n"
		 "  --rate R               that many per second (default: as fast as it goes)\n"
		 "  --paced-senders N      from that many connections (1)\n"
		 "  --send SQL             what they send, %s: the moment (NOTIFY channel, '%s')\n"
		 "  --send-conninfo STRING their server, if it is another one\n"
		 "  --deliveries N         how often each is to be received (once by each connection)\n"
		 "  --batch MS             what they have committed is notified of by a connection of\n"
		 "                         its own, together, that often\n"
		 "  --setup SQL            what each connection runs in place of LISTEN; %d in it is the\n"
		 "                         number of its first channel\n"
		 "  --pull SQL             each connection sends it again and again, and each row of\n"
		 "                         two columns counts as a notification: position, payload;\n"
		 "                         %s in it is the last position\n"
		 "  --pull-from POSITION   the first one\n"
		 "  --pull-every MS        how often (default: again when it is answered)\n"
		 "Commands on stdin: count | reset | wait TOTAL MS | query MS SQL | ask TOTAL MS SQL |\n"
		 "                   paced SECONDS RATE | stop | start | quit");
}

static Options
parse_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"connections", required_argument, NULL, 'n'},
		{"channel", required_argument, NULL, 'c'},
		{"channels-each", required_argument, NULL, 'm'},
		{"start", required_argument, NULL, 's'},
		{"conninfo", required_argument, NULL, 'd'},
		{"heartbeat", required_argument, NULL, 'b'},
		{"check-sequence", required_argument, NULL, 'q'},
		{"probe", required_argument, NULL, 'p'},
		{"interval-ms", required_argument, NULL, 'i'},
		{"paced", required_argument, NULL, 't'},
		{"rate", required_argument, NULL, 'r'},
		{"paced-senders", required_argument, NULL, 'x'},
		{"send", required_argument, NULL, 'S'},
		{"send-conninfo", required_argument, NULL, 'D'},
		{"deliveries", required_argument, NULL, 'y'},
		{"batch", required_argument, NULL, 'B'},
		{"setup", required_argument, NULL, 'u'},
		{"pull", required_argument, NULL, 'l'},
		{"pull-from", required_argument, NULL, 'f'},
		{"pull-every", required_argument, NULL, 'e'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	Options		options = {
		.conninfo = "",.channel = "channel_1",.connections = 1,.channels_each = 1,.interval_ms = 20,
		.pull_from = "",.deliveries = -1
	};
	int			index = 0;
	int			letter;

	while ((letter = getopt_long(argc, argv, "", known, &index)) != -1)
	{
		const char *name = known[index].name;

		switch (letter)
		{
			case 'n':
				options.connections = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'c':
				options.channel = optarg;
				break;
			case 'm':
				options.channels_each = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 's':
				options.start = whole_number(name, optarg, 0, NUMBER_MAX);
				break;
			case 'd':
				options.conninfo = optarg;
				break;
			case 'b':
				options.heartbeat_s = number_above_zero(name, optarg);
				break;
			case 'q':
				options.senders = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'p':
				options.probe_count = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'i':
				options.interval_ms = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 't':
				options.paced_s = number_above_zero(name, optarg);
				break;
			case 'r':
				options.rate = number_above_zero(name, optarg);
				break;
			case 'x':
				options.paced_senders = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'S':
				options.send = optarg;
				break;
			case 'D':
				options.send_conninfo = optarg;
				break;
			case 'y':
				options.deliveries = whole_number(name, optarg, 0, NUMBER_MAX);
				break;
			case 'B':
				options.batch_ms = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'u':
				options.setup = optarg;
				break;
			case 'l':
				options.pull = optarg;
				break;
			case 'f':
				options.pull_from = optarg;
				break;
			case 'e':
				options.pull_every_ms = whole_number(name, optarg, 1, NUMBER_MAX);
				break;
			case 'h':
				usage();
				exit(0);
			default:
				usage();
				exit(2);
		}
	}
	if (optind < argc)
		die("unexpected argument: %s", argv[optind]);
	if (strlen(options.channel) > 200)
		die("--channel is too long");
	if (strlen(options.pull_from) >= POSITION_SIZE)
		die("--pull-from is too long");
	if (options.pull && !options.setup)
		options.setup = "";
	if (options.deliveries < 0)
		options.deliveries = options.connections;
	if (options.paced_s > 0 && options.paced_senders == 0)
		options.paced_senders = 1;
	return options;
}

/* Opens all connections, and LISTENs or starts to pull. */
static void
open_listeners(Client *client)
{
	const Options *options = &client->options;

	client->listeners = allocate((size_t) options->connections, sizeof(Connection));
	client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (client->epoll_fd < 0)
		die("epoll_create1: %s", strerror(errno));
	for (int i = 0; i < options->connections; i++)
	{
		Connection *conn = &client->listeners[i];
		struct epoll_event event = {.events = EPOLLIN,.data.ptr = conn};

		connection_open(conn, (uint32_t) i, options);
		strcpy(conn->position, options->pull_from);
		if (options->setup)
			connection_set_up(client, conn);
		else
			connection_listen(client, conn);
		if (options->pull && options->pull_every_ms == 0)
			pull_ask(client, conn);
		if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
			die("epoll_ctl: %s", strerror(errno));
	}
	client->pull_start_ns = clock_ns();
}

/*
 * Sends a SELECT 1 over every connection whose turn is due: each connection
 * has one turn per period, evenly spread.  A connection whose socket is full
 * misses its turn.
 */
static void
send_heartbeats(Client *client, uint64_t start_ns, uint64_t *turns, uint64_t now_ns)
{
	uint64_t	connections = (uint64_t) client->options.connections;
	double		periods = (double) (now_ns - start_ns) / 1e9 / client->options.heartbeat_s;
	uint64_t	due = (uint64_t) (periods * (double) connections);

	for (; *turns < due; (*turns)++)
	{
		Connection *conn = &client->listeners[*turns % connections];

		if (conn->open)
			connection_query(conn, "SELECT 1");
	}
}

/* Counts until the command `quit`.  A NULL pointer in an event means stdin. */
static void
hold(Client *client)
{
	struct epoll_event input = {.events = EPOLLIN,.data.ptr = NULL};
	uint64_t	start_ns = clock_ns();
	uint64_t	turns = 0;
	bool		going = true;

	if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &input) != 0)
		die("stdin must be a pipe or a terminal: %s", strerror(errno));
	while (going)
	{
		struct epoll_event events[EVENTS_MAX];
		bool		timed = client->waiting || client->options.heartbeat_s > 0;
		int			wait_ms = client->options.pull_every_ms > 0 ? 1 : timed ? 5 : -1;
		int			n = epoll_wait(client->epoll_fd, events, EVENTS_MAX, wait_ms);

		for (int i = 0; i < n && going; i++)
		{
			if (events[i].data.ptr == NULL)
				going = commands_read(client);
			else if (!client->stopped)
				connection_read(client, events[i].data.ptr);
		}
		if (client->options.heartbeat_s > 0)
			send_heartbeats(client, start_ns, &turns, clock_ns());
		pull_poll(client, clock_ns());
		if (client->waiting)
			commands_check_wait(client, clock_ns());
	}
}

int
main(int argc, char **argv)
{
	Client		client = {.options = parse_options(argc, argv)};

	raise_file_limit(client.options.connections + client.options.paced_senders + FILES_BESIDE_CONNECTIONS);
	if (client.options.senders > 0)
	{
		client.context = sequence_create(client.options.connections, client.options.senders);
		client.on_notification = sequence_note;
	}
	open_listeners(&client);
	if (client.options.paced_senders > 0)
		paced_open(&client);
	if (client.options.batch_ms > 0)
		batch_open(&client);
	puts("ready");
	fflush(stdout);
	if (client.options.probe_count > 0)
		probe_run(&client);
	else if (client.options.paced_s > 0)
		paced_run(&client, client.options.paced_s, client.options.rate);
	else
		hold(&client);

	batch_close(&client);
	paced_close(&client);
	for (int i = 0; i < client.options.connections; i++)
	{
		if (client.listeners[i].pg)
			PQfinish(client.listeners[i].pg);
		free(client.listeners[i].partial);
	}
	free(client.listeners);
	return 0;
}
