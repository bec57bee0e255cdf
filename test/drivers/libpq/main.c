/*
 * The scenario of ../README.md with libpq: poll() on the socket, PQconsumeInput(), PQnotifies().
 */
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITERS 4
#define ROWS_PER_TRANSACTION 10
#define WAITING_TRANSACTIONS 400	/* of each writer, while the listener only waits */
#define BUSY_TRANSACTIONS 100		/* of each writer, while the listener runs statements */
#define DEADLINE_MS 60000
#define PAYLOAD_BYTES 7999

/* One writer's part of a load: the argument of its thread. */
typedef struct Writer
{
	pthread_t	thread;
	int			number;
	int			first_seq;
	int			transactions;
} Writer;

static int	last_seq[WRITERS + 1];	/* received from each writer */
static int	heard;

static void
fail(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	fputs("libpq: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static PGconn *
open_connection(void)
{
	PGconn	   *connection = PQconnectdb("client_encoding=UTF8");

	if (PQstatus(connection) != CONNECTION_OK)
		fail("cannot connect: %s", PQerrorMessage(connection));
	return connection;
}

/* Runs a statement with up to 3 parameters; returns the integer of its row, if it returns one. */
static int
run(PGconn *connection, const char *sql, int count, const char *const *parameters)
{
	PGresult   *result = count ? PQexecParams(connection, sql, count, NULL, parameters, NULL, NULL, 0)
		: PQexec(connection, sql);
	ExecStatusType status = PQresultStatus(result);
	int			value = 0;

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		fail("%s: %s", sql, PQerrorMessage(connection));
	if (PQntuples(result) > 0)
		value = atoi(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

/* The next notification, without running a statement; NULL if the connection has ended. */
static PGnotify *
hear(PGconn *connection)
{
	for (;;)
	{
		struct pollfd waited = {.fd = PQsocket(connection), .events = POLLIN};
		PGnotify   *notification = PQnotifies(connection);

		if (notification != NULL)
			return notification;
		if (poll(&waited, 1, DEADLINE_MS) != 1)
			fail("nothing came within %d ms; heard %d so far", DEADLINE_MS, heard);
		if (!PQconsumeInput(connection))
			return NULL;
	}
}

/* Checks the payload of the next notification; returns its sender. */
static int
expect(PGconn *connection, const char *payload)
{
	PGnotify   *notification = hear(connection);
	int			sender;

	if (notification == NULL)
		fail("the connection ended: %s", PQerrorMessage(connection));
	if (strcmp(notification->relname, "events") != 0 || strcmp(notification->extra, payload) != 0)
		fail("heard \"%.40s\" on %s instead of \"%.40s\"", notification->extra, notification->relname,
			 payload);
	sender = notification->be_pid;
	PQfreemem(notification);
	heard++;
	return sender;
}

/* Checks that each writer's rows arrive in order, none lost and none doubled. */
static void
take_row(PGnotify *notification)
{
	int			writer,
				seq;

	if (sscanf(notification->extra, "%d %d", &writer, &seq) != 2 || writer < 1 || writer > WRITERS)
		fail("heard \"%.40s\" during the load", notification->extra);
	if (seq != last_seq[writer] + 1)
		fail("writer %d: heard row %d after row %d", writer, seq, last_seq[writer]);
	last_seq[writer] = seq;
	PQfreemem(notification);
	heard++;
}

static void *
write_rows(void *argument)
{
	Writer	   *writer = argument;
	PGconn	   *connection = open_connection();
	int			seq = writer->first_seq;

	for (int i = 0; i < writer->transactions; i++, seq += ROWS_PER_TRANSACTION)
	{
		char		number[12],
					first[12],
					last[12];

		snprintf(number, sizeof(number), "%d", writer->number);
		snprintf(first, sizeof(first), "%d", seq);
		snprintf(last, sizeof(last), "%d", seq + ROWS_PER_TRANSACTION - 1);
		run(connection, "BEGIN", 0, NULL);
		run(connection, "INSERT INTO event SELECT $1::int, s FROM generate_series($2::int, $3::int) s", 3,
			(const char *[]) {number, first, last});
		run(connection, "COMMIT", 0, NULL);
	}
	PQfinish(connection);
	return NULL;
}

/* Runs all writers at once, each on its own connection, and the listener meanwhile. */
static void
load(PGconn *listener, int transactions, bool busy)
{
	Writer		writers[WRITERS];
	int			wanted = heard + WRITERS * transactions * ROWS_PER_TRANSACTION;

	for (int i = 0; i < WRITERS; i++)
	{
		writers[i] = (Writer) {.number = i + 1, .first_seq = last_seq[i + 1] + 1,
		.transactions = transactions};
		if (pthread_create(&writers[i].thread, NULL, write_rows, &writers[i]) != 0)
			fail("cannot start a thread");
	}
	while (heard < wanted)
	{
		PGnotify   *notification;

		if (!busy)
		{
			if ((notification = hear(listener)) == NULL)
				fail("the connection ended: %s", PQerrorMessage(listener));
			take_row(notification);
			continue;
		}
		run(listener, "BEGIN", 0, NULL);
		run(listener, "SELECT count(*) FROM pg_class", 0, NULL);
		run(listener, "COMMIT", 0, NULL);
		while ((notification = PQnotifies(listener)) != NULL)
			take_row(notification);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
}

/* Fills the payload with 9 bytes in 3 characters, repeated, and ASCII to its end. */
static void
fill_large(char *payload)
{
	const char *const unit = "ä€😀";
	int			length = 0;

	for (; length + 9 <= PAYLOAD_BYTES; length += 9)
		memcpy(payload + length, unit, 9);
	memset(payload + length, 'x', PAYLOAD_BYTES - length);
	payload[PAYLOAD_BYTES] = '\0';
}

int
main(void)
{
	PGconn	   *listener = open_connection();
	PGconn	   *other = open_connection();
	int			pid = run(listener, "SELECT pg_backend_pid()", 0, NULL);
	char		large[PAYLOAD_BYTES + 1];
	char		pid_text[12];
	int			version = PQlibVersion();

	run(listener, "LISTEN events", 0, NULL);
	load(listener, WAITING_TRANSACTIONS, false);
	load(listener, BUSY_TRANSACTIONS, true);

	fill_large(large);
	run(other, "SELECT pg_notify('events', $1)", 1, (const char *[]) {large});
	expect(listener, large);

	run(listener, "NOTIFY events, 'own'", 0, NULL);
	if (expect(listener, "own") != pid)
		fail("the notification of its own has another sender");

	run(other, "BEGIN", 0, NULL);
	run(other, "NOTIFY events, 'rolled back'", 0, NULL);
	run(other, "ROLLBACK", 0, NULL);
	run(other, "NOTIFY events, 'committed'", 0, NULL);
	expect(listener, "committed");

	run(listener, "UNLISTEN events", 0, NULL);
	run(other, "NOTIFY events, 'unheard'", 0, NULL);
	run(listener, "LISTEN events", 0, NULL);
	run(other, "NOTIFY events, 'heard again'", 0, NULL);
	expect(listener, "heard again");

	snprintf(pid_text, sizeof(pid_text), "%d", pid);
	run(other, "SELECT pg_terminate_backend($1::int)", 1, (const char *[]) {pid_text});
	if (hear(listener) != NULL)
		fail("a notification came instead of the end of the connection");
	PQfinish(listener);
	run(other, "NOTIFY events, 'missed'", 0, NULL);
	listener = open_connection();
	run(listener, "LISTEN events", 0, NULL);
	run(other, "NOTIFY events, 'after reconnecting'", 0, NULL);
	expect(listener, "after reconnecting");
	PQfinish(listener);
	PQfinish(other);

	printf("{\"driver\": \"libpq\", \"version\": \"%d.%d\", \"heard\": %d, \"steps\": [\"waiting\", \"busy\", "
		   "\"large\", \"own\", \"rollback\", \"unlisten\", \"reconnect\"]}\n",
		   version / 10000, version % 10000, heard);
	return 0;
}
