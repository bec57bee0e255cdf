/*
 * connection.c
 *		Opens one connection, sends requests, and counts the received frames.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pubsub.h"

#define READ_SIZE	(512 * 1024)

/* A partial frame is copied to the front, and the data of a read follows it. */
struct ReadBuffer
{
	char		data[FRAME_SIZE_MAX + READ_SIZE + 1];
};


ReadBuffer *
read_buffer_create(void)
{
	return allocate(1, sizeof(ReadBuffer));
}

static int
open_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		die("path of the socket is too long: %s", path);
	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

static int
open_tcp(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const char *colon = strchr(text, ':');
	char		ip[INET_ADDRSTRLEN];
	int			on = 1;
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!colon || (size_t) (colon - text) >= sizeof(ip))
		die("not IP:PORT: %s", text);
	memcpy(ip, text, (size_t) (colon - text));
	ip[colon - text] = 0;
	address.sin_port = htons((uint16_t) atoi(colon + 1));
	if (inet_pton(AF_INET, ip, &address.sin_addr) != 1)
		die("not an IP address: %s", ip);
	if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("%s: %s", text, strerror(errno));
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		die("TCP_NODELAY: %s", strerror(errno));
	return fd;
}

/* Sends a request, and waits for one reply. */
static void
request(Connection *conn, const Options *options, ReadBuffer *buffer, size_t (*write_request) (char *to))
{
	char		message[MESSAGE_MAX];

	connection_send(conn, message, write_request(message));
	while (conn->open && connection_read(conn, options->protocol, buffer, true).replies == 0)
		;
	if (!conn->open)
		die("the server closed the connection");
}

void
connection_open(Connection *conn, const Options *options, ReadBuffer *buffer)
{
	conn->fd = options->address[0] == '/' ? open_unix(options->address) : open_tcp(options->address);
	conn->open = true;
	if (options->protocol->hello)
		request(conn, options, buffer, options->protocol->hello);
}

void
connection_subscribe(Connection *conn, const Options *options, ReadBuffer *buffer)
{
	request(conn, options, buffer, options->protocol->subscribe);
}

/* Sends all of it; blocks until that is done. */
void
connection_send(Connection *conn, const char *data, size_t size)
{
	while (size > 0)
	{
		ssize_t		sent = send(conn->fd, data, size, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			die("send: %s", strerror(errno));
		data += sent;
		size -= (size_t) sent;
	}
}

/* Prints the printable characters of an error, and ends the program. */
static void
die_of(const char *frame, size_t length)
{
	char		printable[FRAME_SIZE_MAX];
	size_t		size = length < sizeof(printable) ? length : sizeof(printable) - 1;

	for (size_t i = 0; i < size; i++)
		printable[i] = frame[i] >= ' ' && frame[i] <= '~' ? frame[i] : ' ';
	printable[size] = 0;
	die("the server says: %s", printable);
}

/* Reads once, and counts whole frames. */
Counts
connection_read(Connection *conn, const Protocol *protocol, ReadBuffer *buffer, bool wait)
{
	char	   *begin = buffer->data + FRAME_SIZE_MAX - conn->partial_size;
	const char *at = begin;
	const char *end;
	Counts		counts = {0};
	ssize_t		size = recv(conn->fd, buffer->data + FRAME_SIZE_MAX, READ_SIZE, wait ? 0 : MSG_DONTWAIT);

	if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return counts;
	if (size <= 0)
	{
		conn->open = false;
		close(conn->fd);		/* also removes it from the epoll set */
		return counts;
	}
	memcpy(begin, conn->partial, conn->partial_size);
	end = buffer->data + FRAME_SIZE_MAX + size;
	while (at < end)
	{
		FrameKind	kind = FRAME_OTHER;
		size_t		length = protocol->frame(at, (size_t) (end - at), &kind);

		if (length == 0)
			break;
		switch (kind)
		{
			case FRAME_NOTIFICATION:
				counts.notifications++;
				break;
			case FRAME_REPLY:
				counts.replies++;
				break;
			case FRAME_PING:
				connection_send(conn, "PONG\r\n", 6);
				break;
			case FRAME_ERROR:
				die_of(at, length);
				break;
			case FRAME_OTHER:
				break;
		}
		at += length;
	}
	conn->partial_size = (size_t) (end - at);
	if (conn->partial_size > FRAME_SIZE_MAX)
		die("a frame of more than %d bytes", FRAME_SIZE_MAX);
	memcpy(conn->partial, at, conn->partial_size);
	conn->notifications += counts.notifications;
	return counts;
}
