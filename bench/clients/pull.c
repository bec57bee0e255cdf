/*
 * pull.c
 *		--pull: connections that repeatedly query for new messages.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * Each row of the answer is a position and a payload, and counts as a
 * notification unless the payload is null.  The next query continues from the
 * position of the last row.  It is sent when the previous one is answered, for
 * a query that waits in the server; or at an interval, for one that does not.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "listen.h"

#define SQL_SIZE 400			/* connection_query() takes a little more */
#define ROW_HEADER_SIZE 7		/* type, length, number of columns */
#define PAYLOAD_SIZE 64			/* the rest of a payload is ignored */

/* Copies the template with %s replaced by the value. */
void
fill_in(char *sql, size_t size, const char *template, const char *value)
{
	const char *mark = strstr(template, "%s");
	int			length;

	if (mark)
		length = snprintf(sql, size, "%.*s%s%s", (int) (mark - template), template, value, mark + 2);
	else
		length = snprintf(sql, size, "%s", template);
	if (length < 0 || (size_t) length >= size)
		die("too long: %s", template);
}

/* Sends the query for messages after the connection's position. */
void
pull_ask(Client *client, Connection *conn)
{
	char		sql[SQL_SIZE];

	fill_in(sql, sizeof(sql), client->options.pull, conn->position);
	if (!connection_query(conn, sql))
		die("connection %u does not take the query", conn->number);
	conn->asked = true;
}

void
pull_answered(Client *client, Connection *conn)
{
	conn->asked = false;
	if (client->options.pull_every_ms == 0)
		pull_ask(client, conn);
}

/*
 * With --pull-every: sends the query over every connection whose turn is due.
 * Each has one turn per period, evenly spread; one that waits for an answer
 * misses its turn.
 */
void
pull_poll(Client *client, uint64_t now_ns)
{
	uint64_t	connections = (uint64_t) client->options.connections;
	uint64_t	due;

	if (client->options.pull_every_ms == 0)
		return;
	due = (now_ns - client->pull_start_ns) * connections / ((uint64_t) client->options.pull_every_ms * 1000000);
	for (; client->pull_turns < due; client->pull_turns++)
	{
		Connection *conn = &client->listeners[client->pull_turns % connections];

		if (conn->open && !conn->asked)
			pull_ask(client, conn);
	}
}

/*
 * Copies the beginning of a column, zero-terminated, and returns the start of
 * the next column.  The length is -1 for a null.
 */
static const uint8_t *
take_column(const Connection *conn, const uint8_t *at, const uint8_t *end, char *copy, size_t size, int *length)
{
	uint32_t	word;
	size_t		copied;

	if (end - at < 4)
		die("connection %u: a row that is cut off", conn->number);
	memcpy(&word, at, sizeof(word));
	*length = (int) ntohl(word);
	at += sizeof(word);
	copy[0] = 0;
	if (*length < 0)
		return at;
	if (end - at < *length)
		die("connection %u: a row that is cut off", conn->number);
	copied = (size_t) *length < size ? (size_t) *length : size - 1;
	memcpy(copy, at, copied);
	copy[copied] = 0;
	return at + *length;
}

/* Handles one row; rows without exactly two columns are ignored. */
void
pull_row(Client *client, Connection *conn, const uint8_t *frame, size_t size, uint64_t now_ns)
{
	const uint8_t *end = frame + size;
	const uint8_t *at = frame + ROW_HEADER_SIZE;
	char		payload[PAYLOAD_SIZE];
	uint16_t	columns = 0;
	int			length;

	if (size >= ROW_HEADER_SIZE)
		memcpy(&columns, frame + ROW_HEADER_SIZE - sizeof(columns), sizeof(columns));
	if (ntohs(columns) != 2)
		return;
	at = take_column(conn, at, end, conn->position, sizeof(conn->position), &length);
	take_column(conn, at, end, payload, sizeof(payload), &length);
	if (length < 0)
		return;
	conn->notifications++;
	client->notifications++;
	if (client->on_notification)
		client->on_notification(client->context, conn, payload, now_ns);
}
