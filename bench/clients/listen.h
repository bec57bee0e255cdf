/*
 * listen.h
 *		Shared declarations of the listening client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * One process, one thread, one epoll loop.  libpq opens the connections and
 * sends LISTEN; from then on this program reads the sockets itself, and only
 * frame types and lengths, so that a benchmark does not measure the client.
 */
#ifndef LISTEN_H
#define LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <libpq-fe.h>

#include "client.h"

/* A longer frame means that frame boundaries in the stream were lost. */
#define FRAME_SIZE_MAX (16 * 1024 * 1024)

/* Longer than a position of pg_herald. */
#define POSITION_SIZE 320

/* State of `--check-sequence` for one sender on one connection. */
typedef struct Sequence
{
	uint64_t	newest;			/* highest number received; senders begin at 1 */
	uint64_t	seen;			/* bit i: newest - i was received */
} Sequence;

typedef struct Connection
{
	PGconn	   *pg;
	int			fd;
	uint32_t	number;			/* 0-based, in the order of opening */
	bool		open;
	uint64_t	notifications;
	uint64_t	bytes;
	uint64_t	ready_count;	/* ReadyForQuery frames seen */

	/* --pull */
	bool		asked;			/* a query has no answer yet */
	char		position[POSITION_SIZE];	/* first column of the last row */

	/* a frame whose end has not arrived yet */
	uint8_t    *partial;
	size_t		partial_size;
	size_t		partial_capacity;
} Connection;

/*
 * Called for every notification, and for every row that counts as one.  payload is
 * zero-terminated; for a row it is cut off at PAYLOAD_SIZE (pull.c).
 */
typedef void (*NotificationHandler) (void *context, const Connection *conn,
									 const char *payload, uint64_t now_ns);

typedef struct Options
{
	const char *conninfo;
	const char *channel;		/* %d: number of the channel */
	int			connections;
	int			channels_each;
	int			start;			/* number of the first channel */
	double		heartbeat_s;	/* 0: none */
	int			senders;		/* --check-sequence, 0: off */
	int			probe_count;	/* 0: hold the connections instead */
	int			interval_ms;
	double		paced_s;		/* above 0: send for this number of seconds instead */
	double		rate;			/* notifications per second, 0: as fast as possible */
	int			paced_senders;	/* 0: one with --paced, else none */
	const char *setup;			/* in place of LISTEN; NULL: LISTEN */
	const char *pull;			/* query sent repeatedly; NULL: none */
	const char *pull_from;		/* its first position */
	int			pull_every_ms;	/* 0: again as soon as it is answered */
	const char *send;			/* the senders' statement; NULL: NOTIFY */
	const char *send_conninfo;	/* the senders' server; NULL: that of all */
	int			deliveries;		/* of each notification, over all connections */
	int			batch_ms;		/* 0: senders notify themselves */
} Options;

typedef struct Client
{
	Options		options;
	Connection *listeners;
	int			epoll_fd;
	int			closed;			/* connections closed by the server */
	uint64_t	notifications;	/* over all listeners */
	uint64_t	bytes;
	uint64_t	ready_count;	/* ReadyForQuery frames, over all listeners */
	uint64_t	listen_us;		/* time spent in LISTEN, all connections */
	bool		stopped;		/* reads no listener's socket */
	NotificationHandler on_notification;	/* NULL: count only */
	void	   *context;
	struct Paced *paced;		/* NULL: there are no senders */
	struct Batch *batch;		/* NULL: --batch was not given */
	uint64_t	pull_start_ns;
	uint64_t	pull_turns;		/* of pull_poll() */

	/* the command that waits, if any */
	bool		waiting;
	uint64_t	wait_total;		/* for this number of notifications, */
	uint64_t	wait_ready;		/* and ReadyForQuery frames or closed connections */
	uint64_t	wait_start_ns;
	uint64_t	wait_deadline_ns;
} Client;

/* connection.c */
extern void connection_open(Connection *conn, uint32_t number, const Options *options);
extern void connection_listen(Client *client, Connection *conn);
extern void connection_set_up(Client *client, Connection *conn);
extern char *channel_name(const Connection *conn, const char *pattern, int number);
extern void connection_read(Client *client, Connection *conn);
extern bool connection_query(Connection *conn, const char *sql);

/* commands.c */
extern bool commands_read(Client *client);
extern void commands_check_wait(Client *client, uint64_t now_ns);

/* sequence.c */
typedef struct SequenceCheck SequenceCheck;
extern SequenceCheck *sequence_create(int connections, int senders);
extern void sequence_note(void *context, const Connection *conn,
						  const char *payload, uint64_t now_ns);
extern void sequence_reset(SequenceCheck *check, int connections);
extern void sequence_print(const SequenceCheck *check);

/* probe.c */
extern void probe_run(Client *client);

/* paced.c */
extern void paced_open(Client *client);
extern void paced_run(Client *client, double seconds, double rate);
extern void paced_close(Client *client);

/* batch.c */
extern void batch_open(Client *client);
extern void batch_close(Client *client);
extern void batch_add(struct Batch *batch, uint64_t due_ns);
extern void batch_send(struct Batch *batch, uint64_t now_ns);
extern void batch_read(struct Batch *batch);

/* pull.c */
extern void fill_in(char *sql, size_t size, const char *template, const char *value);
extern void pull_ask(Client *client, Connection *conn);
extern void pull_answered(Client *client, Connection *conn);
extern void pull_poll(Client *client, uint64_t now_ns);
extern void pull_row(Client *client, Connection *conn, const uint8_t *frame, size_t size, uint64_t now_ns);

#endif
