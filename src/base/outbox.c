/*-------------------------------------------------------------------------
 *
 * outbox.c
 *	  Keeps messages to the client in the buffer while other processes wait for this one.
 *
 * A message to the client can come from anywhere: an error, which the server sends before it
 * aborts the transaction; the warning of a commit whose wait for a standby was canceled; the
 * size of a deleted temporary file.  The server flushes each of them at once, and waits if the
 * client does not read.  While this transaction has its place in the queue, or while this
 * backend holds a lock of pg_herald, all other sessions would wait with it.  (On a stock server all
 * senders wait for the lock of its NOTIFY then.  Here notifications would, and each UNLISTEN would take a
 * second, until the client goes: pg_terminate_backend() does not end a write to it.)
 *
 * The server sends through a table of functions that may be replaced (parallel workers do so).
 * Our functions put messages into the server's own buffer, which grows as needed, and flush it
 * after the outbox has been opened again.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/client.h"
#include "base/outbox.h"

static bool is_closed;
static bool has_flush_waited;

/*
 * The table when the module was loaded: the server's functions for a socket.  Our functions
 * replace only these: another table may not be able to store a message without waiting (the
 * one of a background worker that answers another backend throws an error).
 */
static const PQcommMethods *server;
static PQcommMethods ours;

static int	flush(void);
static int	flush_if_writable(void);
static bool is_send_pending(void);
static int	put(char type, const char *body, size_t length);
static void put_noblock(char type, const char *body, size_t length);


void
herald_outbox_init(void)
{
	server = PqCommMethods;
	ours = *server;
	ours.flush = flush;
	ours.flush_if_writable = flush_if_writable;
	ours.is_send_pending = is_send_pending;
	ours.putmessage = put;
	ours.putmessage_noblock = put_noblock;
}

void
herald_outbox_close(void)
{
	if (is_closed || PqCommMethods != server)
		return;
	PqCommMethods = &ours;
	has_flush_waited = false;
	is_closed = true;
}

void
herald_outbox_open(void)
{
	if (!is_closed)
		return;
	is_closed = false;

	/*
	 * If another module has replaced our table meanwhile, it may still call
	 * our functions.
	 */
	if (PqCommMethods == &ours)
		PqCommMethods = server;

	/*
	 * There may be no other flush before the client sends something: after an
	 * error the next flush would be for Sync, which the client may send only
	 * after it has received the error.
	 */
	if (has_flush_waited)
		(void) pq_flush_if_writable();
}

bool
herald_outbox_is_closed(void)
{
	return is_closed;
}

static int
flush(void)
{
	has_flush_waited |= is_closed;
	return is_closed ? 0 : server->flush();
}

static int
flush_if_writable(void)
{
	has_flush_waited |= is_closed;
	return is_closed ? 0 : server->flush_if_writable();
}

static bool
is_send_pending(void)
{
	return !is_closed && server->is_send_pending();
}

static int
put(char type, const char *body, size_t length)
{
	if (!is_closed)
		return server->putmessage(type, body, length);
	put_noblock(type, body, length);
	return 0;
}

/* The server's function calls putmessage() of the current table. */
static void
put_noblock(char type, const char *body, size_t length)
{
	const PQcommMethods *in_place = PqCommMethods;

	PqCommMethods = server;
	server->putmessage_noblock(type, body, length);
	PqCommMethods = in_place;
}
