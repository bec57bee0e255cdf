/*
 * pubsub.h
 *		Shared declarations of the client that publishes and subscribes.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * The same loops serve every server; the differences are in a Protocol.  Frames
 * are only classified and counted, and their contents ignored, so that the client's
 * own work is a small part of the measurement.
 */
#ifndef PUBSUB_H
#define PUBSUB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client.h"

#define CHANNEL			"channel_1"
#define FRAME_SIZE_MAX	4096	/* of a frame that arrives in two pieces */
#define MESSAGE_MAX		256		/* bytes of one request */

typedef enum FrameKind
{
	FRAME_OTHER,				/* ignored */
	FRAME_NOTIFICATION,			/* a published message */
	FRAME_REPLY,				/* the answer to a request */
	FRAME_PING,					/* the server asks for a PONG */
	FRAME_ERROR
} FrameKind;

/* The functions write a request to `to`, which has room for MESSAGE_MAX, and return its length. */
typedef struct Protocol
{
	const char *name;
	size_t		(*hello) (char *to);	/* the first request; NULL: none */
	size_t		(*subscribe) (char *to);
	size_t		(*publish) (char *to);
	size_t		(*block_end) (char *to);	/* after the last publish of a block; NULL: nothing */
	bool		one_reply_a_block;	/* otherwise one for each publish */

	/* The length of the frame at the start of data; 0: it is not complete yet. */
	size_t		(*frame) (const char *data, size_t size, FrameKind *kind);
} Protocol;

typedef struct Connection
{
	int			fd;
	bool		open;
	uint64_t	notifications;
	uint32_t	replies_due;
	size_t		partial_size;	/* of a frame whose end has not arrived yet */
	char		partial[FRAME_SIZE_MAX];
} Connection;

typedef struct Options
{
	const Protocol *protocol;
	const char *address;		/* /path of a unix socket, or IP:PORT */
	int			publishers;
	int			subscribers;
	int			depth;			/* requests sent before waiting for their replies */
	double		seconds;
	double		drain_s;		/* how long to wait for the last deliveries */
} Options;

/* protocols.c */
extern const Protocol protocols[];

/* connection.c: one buffer for each thread, empty between two reads */
typedef struct ReadBuffer ReadBuffer;
typedef struct Counts
{
	uint64_t	notifications;
	uint64_t	replies;
} Counts;

extern ReadBuffer *read_buffer_create(void);
extern void connection_open(Connection *conn, const Options *options, ReadBuffer *buffer);
extern void connection_subscribe(Connection *conn, const Options *options, ReadBuffer *buffer);
extern void connection_send(Connection *conn, const char *data, size_t size);
extern Counts connection_read(Connection *conn, const Protocol *protocol, ReadBuffer *buffer, bool wait);

#endif
