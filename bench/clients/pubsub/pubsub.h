/*
 * pubsub.h
 *		Shared declarations of the client that publishes and subscribes.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * The same loops serve every server; what differs is a Protocol.  Frames are
 * told apart and counted, and nothing in them is looked at, so that the client
 * is as little as possible of what is measured.
 */
#ifndef PUBSUB_H
#define PUBSUB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client.h"

#define CHANNEL			"channel_1"
#define FRAME_SIZE_MAX	4096	/* of one that arrives in two pieces */
#define MESSAGE_MAX		256		/* bytes of one request */

typedef enum FrameKind
{
	FRAME_OTHER,				/* of no concern */
	FRAME_NOTIFICATION,			/* what was published */
	FRAME_REPLY,				/* the answer to a request */
	FRAME_PING,					/* the server wants to hear of us */
	FRAME_ERROR
} FrameKind;

/* Requests are written to `to`, which has room for MESSAGE_MAX; they return their length. */
typedef struct Protocol
{
	const char *name;
	size_t		(*hello) (char *to);	/* the first request; NULL: none */
	size_t		(*subscribe) (char *to);
	size_t		(*publish) (char *to);
	size_t		(*block_end) (char *to);	/* after the last publish of a block; NULL: nothing */
	bool		one_reply_a_block;	/* otherwise one for each publish */

	/* The length of the frame that data begins with; 0: it is not whole yet. */
	size_t		(*frame) (const char *data, size_t size, FrameKind *kind);
} Protocol;

typedef struct Connection
{
	int			fd;
	bool		open;
	uint64_t	notifications;
	uint32_t	replies_due;
	size_t		partial_size;	/* a frame whose end has not come yet */
	char		partial[FRAME_SIZE_MAX];
} Connection;

typedef struct Options
{
	const Protocol *protocol;
	const char *address;		/* /path of a unix socket, or IP:PORT */
	int			publishers;
	int			subscribers;
	int			depth;			/* requests sent before their replies are waited for */
	double		seconds;
	double		drain_s;		/* how long to wait for what is under way then */
} Options;

/* protocols.c */
extern const Protocol protocols[];

/* connection.c: one buffer for each thread, which nothing stays in */
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
