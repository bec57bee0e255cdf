/*
 * protocols.c
 *		The requests to PostgreSQL, Redis and NATS, and the boundaries of their frames.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * The payload is always empty.  In PostgreSQL a publish is a transaction of its
 * own.  NATS does not answer a publish; as its clients do, this one sends a PING
 * afterwards, and the PONG confirms everything before it.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pubsub.h"

static size_t
text(char *to, const char *from)
{
	size_t		length = strlen(from);

	memcpy(to, from, length);
	return length;
}

/* ---- PostgreSQL ---- */

#define POSTGRES_VERSION	(3 << 16)
#define POSTGRES_HEADER		5

static size_t
postgres_hello(char *to)
{
	static const char parameters[] = "user\0postgres\0database\0bench\0application_name\0bench/peers\0";
	uint32_t	words[2] = {htonl(8 + sizeof(parameters)), htonl(POSTGRES_VERSION)};

	memcpy(to, words, 8);
	memcpy(to + 8, parameters, sizeof(parameters));
	return 8 + sizeof(parameters);
}

static size_t
postgres_query(char *to, const char *sql)
{
	size_t		length = strlen(sql) + 1;
	uint32_t	word = htonl((uint32_t) length + 4);

	to[0] = 'Q';
	memcpy(to + 1, &word, 4);
	memcpy(to + POSTGRES_HEADER, sql, length);
	return POSTGRES_HEADER + length;
}

static size_t
postgres_subscribe(char *to)
{
	return postgres_query(to, "LISTEN " CHANNEL);
}

static size_t
postgres_publish(char *to)
{
	return postgres_query(to, "NOTIFY " CHANNEL);
}

/* The cost of any transaction: the limit of publishing. */
static size_t
postgres_select(char *to)
{
	return postgres_query(to, "SELECT 1");
}

static size_t
postgres_frame(const char *data, size_t size, FrameKind *kind)
{
	uint32_t	word;
	size_t		length;

	if (size < POSTGRES_HEADER)
		return 0;
	memcpy(&word, data + 1, 4);
	length = 1 + (size_t) ntohl(word);
	switch (data[0])
	{
		case 'A':
			*kind = FRAME_NOTIFICATION;
			break;
		case 'Z':
			*kind = FRAME_REPLY;
			break;
		case 'E':
			*kind = FRAME_ERROR;
			break;
		default:
			*kind = FRAME_OTHER;
	}
	return length <= size ? length : 0;
}

/* ---- Redis ---- */

static size_t
redis_subscribe(char *to)
{
	return text(to, "*2\r\n$9\r\nSUBSCRIBE\r\n$9\r\n" CHANNEL "\r\n");
}

static size_t
redis_publish(char *to)
{
	return text(to, "*3\r\n$7\r\nPUBLISH\r\n$9\r\n" CHANNEL "\r\n$0\r\n\r\n");
}

/* The length of a line with its end; 0: it is not complete yet. */
static size_t
line_length(const char *data, size_t size)
{
	const char *end = memchr(data, '\n', size);

	return end ? (size_t) (end + 1 - data) : 0;
}

static size_t
redis_value(const char *data, size_t size)
{
	size_t		length = line_length(data, size);
	long		count;

	if (length == 0 || (data[0] != '$' && data[0] != '*'))
		return length;
	count = strtol(data + 1, NULL, 10);
	if (data[0] == '$')
	{
		if (count >= 0)
			length += (size_t) count + 2;
		return length <= size ? length : 0;
	}
	for (; count > 0; count--)
	{
		size_t		part = length < size ? redis_value(data + length, size - length) : 0;

		if (part == 0)
			return 0;
		length += part;
	}
	return length;
}

static size_t
redis_frame(const char *data, size_t size, FrameKind *kind)
{
	static const char message[] = "*3\r\n$7\r\nmessage\r\n";
	size_t		length = redis_value(data, size);

	if (length == 0)
		return 0;
	if (data[0] == '-')
		*kind = FRAME_ERROR;
	else if (length >= sizeof(message) && memcmp(data, message, sizeof(message) - 1) == 0)
		*kind = FRAME_NOTIFICATION;
	else
		*kind = FRAME_REPLY;
	return length;
}

/* ---- NATS ---- */

static size_t
nats_hello(char *to)
{
	return text(to, "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"bench/peers\"}\r\nPING\r\n");
}

static size_t
nats_subscribe(char *to)
{
	return text(to, "SUB " CHANNEL " 1\r\nPING\r\n");
}

static size_t
nats_publish(char *to)
{
	return text(to, "PUB " CHANNEL " 0\r\n\r\n");
}

static size_t
nats_block_end(char *to)
{
	return text(to, "PING\r\n");
}

static size_t
nats_frame(const char *data, size_t size, FrameKind *kind)
{
	size_t		length = line_length(data, size);

	if (length == 0)
		return 0;
	*kind = FRAME_OTHER;
	if (strncmp(data, "MSG ", 4) == 0)
	{
		const char *last = memrchr(data, ' ', length);

		*kind = FRAME_NOTIFICATION;
		length += strtoul(last + 1, NULL, 10) + 2;
	}
	else if (strncmp(data, "PONG", 4) == 0)
		*kind = FRAME_REPLY;
	else if (strncmp(data, "PING", 4) == 0)
		*kind = FRAME_PING;
	else if (data[0] == '-')
		*kind = FRAME_ERROR;
	return length <= size ? length : 0;
}

const Protocol protocols[] = {
	{"postgres", postgres_hello, postgres_subscribe, postgres_publish, NULL, false, postgres_frame},
	{"select", postgres_hello, postgres_subscribe, postgres_select, NULL, false, postgres_frame},
	{"redis", NULL, redis_subscribe, redis_publish, NULL, false, redis_frame},
	{"nats", nats_hello, nats_subscribe, nats_publish, nats_block_end, true, nats_frame},
	{0}
};
