/*
 * batch.c
 *		--batch: notifies for committed transactions together, outside of them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 * Applications do this where NOTIFY does not scale: each committed transaction is
 * noted here, and a separate connection periodically notifies of all of them.  The
 * notes are lost if this program ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "listen.h"

#define MOMENT_SIZE 24

typedef struct Batch
{
	PGconn	   *pg;
	const char *channel;
	uint64_t	every_ns;
	uint64_t	next_ns;		/* earliest time of the next send */
	bool		busy;
	char	   *moments;		/* an SQL array without the closing brace */
	size_t		used;
	size_t		capacity;
} Batch;

/* Opens the connection that notifies. */
void
batch_open(Client *client)
{
	const Options *options = &client->options;
	Batch	   *batch = allocate(1, sizeof(Batch));
	Connection	conn = {0};
	struct epoll_event event = {.events = EPOLLIN,.data.ptr = batch};

	client->batch = batch;
	connection_open(&conn, 0, options);
	batch->pg = conn.pg;
	batch->channel = options->channel;
	batch->every_ns = (uint64_t) options->batch_ms * 1000000;
	if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, conn.fd, &event) != 0)
		die("epoll_ctl: %s", strerror(errno));
}

void
batch_close(Client *client)
{
	Batch	   *batch = client->batch;

	if (!batch)
		return;
	PQfinish(batch->pg);
	free(batch->moments);
	free(batch);
}

/* Notes that a sender has committed the notification that was due at due_ns. */
void
batch_add(Batch *batch, uint64_t due_ns)
{
	if (batch->capacity - batch->used < MOMENT_SIZE)
	{
		batch->capacity = batch->capacity * 2 + MOMENT_SIZE * 64;
		batch->moments = realloc(batch->moments, batch->capacity);
		if (!batch->moments)
			die("out of memory");
	}
	batch->used += (size_t) sprintf(batch->moments + batch->used, "%c%" PRIu64, batch->used == 0 ? '{' : ',', due_ns);
}

/* Notifies of all noted commits, if the interval has passed. */
void
batch_send(Batch *batch, uint64_t now_ns)
{
	const char *values[2] = {batch->channel, batch->moments};

	if (batch->busy || batch->used == 0 || now_ns < batch->next_ns)
		return;
	strcpy(batch->moments + batch->used, "}");
	if (!PQsendQueryParams(batch->pg, "SELECT count(pg_notify($1, moment)) FROM unnest($2::text[]) AS moment",
						   2, NULL, values, NULL, NULL, 0))
		die("batch: %s", PQerrorMessage(batch->pg));
	batch->used = 0;
	batch->busy = true;
	batch->next_ns = now_ns + batch->every_ns;
}

/* Reads the answer. */
void
batch_read(Batch *batch)
{
	PGresult   *result;

	if (!PQconsumeInput(batch->pg))
		die("batch: %s", PQerrorMessage(batch->pg));
	while (!PQisBusy(batch->pg) && batch->busy)
	{
		result = PQgetResult(batch->pg);
		batch->busy = result != NULL;
		if (result && PQresultStatus(result) != PGRES_TUPLES_OK)
			die("batch: %s", PQerrorMessage(batch->pg));
		PQclear(result);
	}
}
