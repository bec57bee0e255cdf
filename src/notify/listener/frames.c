/*-------------------------------------------------------------------------
 *
 * frames.c
 *	  Notifications on their way to the client, many at a time.
 *
 * The server takes a message in three parts: its type, its length, its body.
 * For a body of 14 bytes that costs several times as much as to copy it, and
 * hundreds of listeners have thousands of them each.  So they are put together
 * here as they will stand in the stream, and handed over as one.
 *
 * For that there is pq_putmessage_v2(), which puts no length between the type
 * and the rest: the rest may then as well be a length and a body, and further
 * whole messages.  The server keeps it to turn away clients of version 2 of the
 * protocol.  Should it be removed, each message has to be put by itself, as is
 * done where another module has the server put messages in a way of its own.
 *
 * When its buffer is full the server waits for the client.  A client that does not
 * read must not hold a turn for so long: it is given back before.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"

#include "base/client.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/frames.h"

#define NOTIFICATION_RESPONSE	'A'

/* A message's type and its length. */
#define HEAD_SIZE	(1 + sizeof(uint32))

/* A few hundred small ones; the server's own buffer is of the same size. */
static char frames[8192];
static Size used;

/* At most that many bytes are in the server's buffer, as far as this pass has put them there. */
static Size unsent;

static void make_way(void);

/* What stood there when we were loaded: the server's own way. */
static int	(*server_putmessage) (char type, const char *body, size_t length);


void
herald_frames_init(void)
{
	server_putmessage = PqCommMethods->putmessage;
}

/* What others have put there, such as the server's own notifications, is of unknown size. */
void
herald_frames_begin(void)
{
	unsent = pq_is_send_pending() ? sizeof(frames) : 0;
}

void
herald_frames_add(const char *body, uint32 length)
{
	uint32		length_sent = pg_hton32(length + (uint32) sizeof(uint32));
	Size		size = HEAD_SIZE + length;
	bool		by_itself;
	char	   *to;

	/* Only herald.max_payload allows one of more than the buffer's size. */
	by_itself = size > sizeof(frames) || PqCommMethods->putmessage != server_putmessage;

	if (by_itself || used + size > sizeof(frames))
		herald_frames_send();
	if (by_itself)
	{
		herald_frames_expect(length);
		(void) pq_putmessage(NOTIFICATION_RESPONSE, body, length);
		return;
	}

	to = frames + used;
	to[0] = NOTIFICATION_RESPONSE;
	memcpy(to + 1, &length_sent, sizeof(length_sent));
	memcpy(to + HEAD_SIZE, body, length);
	used += size;
	Assert(used <= sizeof(frames));
}

void
herald_frames_send(void)
{
	if (used == 0)
		return;

	/* With nothing before it in the server's buffer this has room there. */
	make_way();

	/* If the client has gone, the server has taken note of it. */
	(void) pq_putmessage_v2(frames[0], frames + 1, used - 1);
	unsent += used;
	used = 0;
}

/* In another encoding it may be longer, up to this. */
void
herald_frames_expect(uint32 length)
{
	Size		size = HEAD_SIZE + (Size) length * MAX_CONVERSION_GROWTH;

	unsent += size;
	if (unsent <= sizeof(frames))
		return;
	make_way();
	unsent = size;
	if (unsent > sizeof(frames))
		herald_turns_give_back();
}

bool
herald_frames_go_out(void)
{
	unsent = 0;
	return pq_flush_if_writable() != 0 || !pq_is_send_pending();
}

/* What comes next would have the server wait if the client does not take what it has. */
static void
make_way(void)
{
	if (!herald_frames_go_out())
		herald_turns_give_back();
}
