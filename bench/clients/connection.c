/*
 * connection.c
 *		Opens one connection, and reads protocol frames from its socket.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * A frame is a type byte, a length word that includes itself, and a body.
 * Whole frames are handled in the read buffer; only a frame that is cut off
 * by the end of a read is copied, into the connection's `partial`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

#define HEADER_SIZE 5
#define SETUP_SIZE 1024

/*
 * Bigger than a socket's buffer, so that one recv() empties the socket.  One
 * buffer serves all connections: it is empty between two reads.
 */
static uint8_t read_buffer[1024 * 1024];

static void feed(Client *client, Connection *conn, const uint8_t *data, size_t size,
				 uint64_t now_ns);

/*
 * Connects, or ends the program with the server's message.  Encryption is
 * off: from here on the socket is read without libpq.
 */
void
connection_open(Connection *conn, uint32_t number, const Options *options)
{
	const char *keywords[] = {"dbname", "sslmode", "gssencmode", "application_name", NULL};
	const char *values[] = {options->conninfo, "disable", "disable", "bench/listen", NULL};

	conn->number = number;
	conn->pg = PQconnectdbParams(keywords, values, 1);
	if (PQstatus(conn->pg) != CONNECTION_OK)
		die("connection %u: %s", number, PQerrorMessage(conn->pg));
	conn->fd = PQsocket(conn->pg);
	conn->open = true;
}

/* Copies the pattern, with its first %d replaced by the number. */
static void
fill_in_number(char *text, size_t size, const char *pattern, int number)
{
	const char *mark = strstr(pattern, "%d");
	int			length;

	if (mark)
		length = snprintf(text, size, "%.*s%d%s", (int) (mark - pattern), pattern, number, mark + 2);
	else
		length = snprintf(text, size, "%s", pattern);
	if (length < 0 || (size_t) length >= size)
		die("too long: %s", pattern);
}

/*
 * Returns the quoted name of channel `number`: `pattern` with its first %d
 * replaced.  The caller frees it with PQfreemem().
 */
char *
channel_name(const Connection *conn, const char *pattern, int number)
{
	char		name[256];
	char	   *quoted;

	fill_in_number(name, sizeof(name), pattern, number);
	quoted = PQescapeIdentifier(conn->pg, name, strlen(name));
	if (!quoted)
		die("channel name: %s", PQerrorMessage(conn->pg));
	return quoted;
}

/*
 * LISTENs to all channels of one connection in one transaction, and adds its
 * duration to client->listen_us.
 */
void
connection_listen(Client *client, Connection *conn)
{
	const Options *options = &client->options;
	int			first = options->start + (int) conn->number * options->channels_each;
	size_t		size;
	char	   *sql;
	FILE	   *out = open_memstream(&sql, &size);
	uint64_t	begin;
	PGresult   *result;
	PGnotify   *early;

	fputs("BEGIN;", out);
	for (int i = 0; i < options->channels_each; i++)
	{
		char	   *name = channel_name(conn, options->channel, first + i);

		fprintf(out, "LISTEN %s;", name);
		PQfreemem(name);
	}
	fputs("COMMIT", out);
	fclose(out);

	begin = clock_ns();
	result = PQexec(conn->pg, sql);
	client->listen_us += (clock_ns() - begin) / 1000;
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("LISTEN: %s", PQerrorMessage(conn->pg));
	PQclear(result);
	free(sql);

	/* Count the notifications that libpq read along with the answer. */
	while ((early = PQnotifies(conn->pg)) != NULL)
	{
		conn->notifications++;
		client->notifications++;
		PQfreemem(early);
	}
}

/* Runs the --setup statement, if it is not empty; it replaces LISTEN. */
void
connection_set_up(Client *client, Connection *conn)
{
	const Options *options = &client->options;
	char		sql[SETUP_SIZE];
	PGresult   *result;

	if (*options->setup == 0)
		return;
	fill_in_number(sql, sizeof(sql), options->setup, options->start + (int) conn->number * options->channels_each);
	result = PQexec(conn->pg, sql);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("%s: %s", sql, PQerrorMessage(conn->pg));
	PQclear(result);
}

/*
 * Sends a simple query.  Returns false, and sends nothing, if the socket is
 * full; the answer is read as frames like everything else.
 */
bool
connection_query(Connection *conn, const char *sql)
{
	uint8_t		message[512];
	size_t		length = strlen(sql) + 1;
	uint32_t	word = htonl((uint32_t) (length + 4));
	ssize_t		sent;

	if (HEADER_SIZE + length > sizeof(message))
		die("query too long: %s", sql);
	message[0] = 'Q';
	memcpy(message + 1, &word, 4);
	memcpy(message + HEADER_SIZE, sql, length);
	sent = send(conn->fd, message, HEADER_SIZE + length, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		return false;
	if ((size_t) sent != HEADER_SIZE + length)
		die("connection %u: query sent in part", conn->number);
	return true;
}

/* Reads once from a connection; notices if the server has closed it. */
void
connection_read(Client *client, Connection *conn)
{
	ssize_t		size = recv(conn->fd, read_buffer, sizeof(read_buffer), MSG_DONTWAIT);

	if (size > 0)
	{
		conn->bytes += (uint64_t) size;
		client->bytes += (uint64_t) size;
		feed(client, conn, read_buffer, (size_t) size,
			 client->on_notification ? clock_ns() : 0);
		return;
	}
	if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	conn->open = false;
	client->closed++;
	PQfinish(conn->pg);			/* closes the socket, and so removes it from the epoll set */
	conn->pg = NULL;
}

/* Size of the frame that starts at data, its type byte included. */
static size_t
frame_size(const Connection *conn, const uint8_t *data)
{
	uint32_t	word;
	size_t		length;

	memcpy(&word, data + 1, sizeof(word));
	length = ntohl(word);
	if (length < 4 || length > FRAME_SIZE_MAX)
		die("connection %u: a frame of type %u claims %zu bytes", conn->number, data[0], length);
	return length + 1;
}

/* Prints the severity and the text of an ErrorResponse to stderr. */
static void
print_error(const Connection *conn, const uint8_t *body, size_t size)
{
	const char *field = (const char *) body;
	const char *end = field + size;

	fprintf(stderr, "listen: connection %u:", conn->number);
	while (field < end && *field)
	{
		size_t		length = strnlen(field, (size_t) (end - field));

		if (*field == 'S' || *field == 'M')
			fprintf(stderr, " %.*s", (int) length - 1, field + 1);
		field += length + 1;
	}
	fputc('\n', stderr);
}

/* The payload of a NotificationResponse: after the pid and the channel. */
static const char *
frame_payload(const Connection *conn, const uint8_t *frame, size_t size)
{
	const char *channel = (const char *) frame + HEADER_SIZE + 4;
	const char *end = (const char *) frame + size;
	const char *terminator = channel < end ? memchr(channel, 0, (size_t) (end - channel)) : NULL;

	if (!terminator || terminator + 1 >= end || end[-1] != 0)
		die("connection %u: a notification without a payload", conn->number);
	return terminator + 1;
}

/* Handles one whole frame. */
static inline void
handle_frame(Client *client, Connection *conn, const uint8_t *frame, size_t size, uint64_t now_ns)
{
	switch (frame[0])
	{
		case 'A':
			conn->notifications++;
			client->notifications++;
			if (client->on_notification)
				client->on_notification(client->context, conn,
										frame_payload(conn, frame, size), now_ns);
			break;
		case 'Z':
			conn->ready_count++;
			client->ready_count++;
			if (conn->asked)
				pull_answered(client, conn);
			break;
		case 'D':
			pull_row(client, conn, frame, size, now_ns);
			break;
		case 'E':
			print_error(conn, frame + HEADER_SIZE, size - HEADER_SIZE);
			if (conn->asked)
				die("connection %u: the query failed", conn->number);
			break;
		default:
			break;
	}
}

/* Appends to the partial frame. */
static void
keep(Connection *conn, const uint8_t *data, size_t size)
{
	if (conn->partial_size + size > conn->partial_capacity)
	{
		conn->partial_capacity = 2 * (conn->partial_size + size);
		conn->partial = realloc(conn->partial, conn->partial_capacity);
		if (!conn->partial)
			die("out of memory");
	}
	memcpy(conn->partial + conn->partial_size, data, size);
	conn->partial_size += size;
}

/* Handles the data of one read: first the rest of a partial frame, then whole frames. */
static void
feed(Client *client, Connection *conn, const uint8_t *data, size_t size, uint64_t now_ns)
{
	const uint8_t *end = data + size;

	while (conn->partial_size > 0 && data < end)
	{
		bool		headed = conn->partial_size >= HEADER_SIZE;
		size_t		whole = headed ? frame_size(conn, conn->partial) : HEADER_SIZE;
		size_t		missing = whole - conn->partial_size;
		size_t		take = missing < (size_t) (end - data) ? missing : (size_t) (end - data);

		keep(conn, data, take);
		data += take;
		if (conn->partial_size >= HEADER_SIZE &&
			conn->partial_size == frame_size(conn, conn->partial))
		{
			handle_frame(client, conn, conn->partial, conn->partial_size, now_ns);
			conn->partial_size = 0;
		}
	}

	while (end - data >= HEADER_SIZE)
	{
		size_t		whole = frame_size(conn, data);

		if ((size_t) (end - data) < whole)
			break;
		handle_frame(client, conn, data, whole, now_ns);
		data += whole;
	}
	if (data < end)
		keep(conn, data, (size_t) (end - data));
}
