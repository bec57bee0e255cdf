/*-------------------------------------------------------------------------
 *
 * frames.c
 *	  Sends notifications to the client, many at a time.
 *
 * The server takes a message in three parts: its type, its length, its body.  For a body of 14
 * bytes that costs several times as much as copying it, and there may be hundreds of listeners
 * with thousands of messages each.  So messages are assembled here in the form that they have
 * in the stream, and handed over as one.
 *
 * This uses pq_putmessage_v2(), which puts no length between the type and the rest: the rest
 * may then be a length, a body, and further complete messages.  The server has this function
 * to reject clients of version 2 of the protocol.  If it is removed some day, each message has
 * to be put separately, as is done already when another module has replaced the server's
 * functions.
 *
 * When its buffer is full we wait for the client.  A listener whose client does not read must not
 * hold a turn for this time: it returns the turn before.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <poll.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/wait_event.h"

#include "base/client.h"
#include "base/waits.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/frames.h"

#define NOTIFICATION_RESPONSE	'A'

/* A message's type and its length. */
#define HEAD_SIZE	(1 + sizeof(uint32))

/* Room for a few hundred small messages; the server's own buffer has the same size. */
static char frames[8192];
static Size used;

/* Upper limit of the bytes that this pass has put into the server's buffer. */
static Size unsent;

static void make_way(void);

/* The server's own function, as of when the module was loaded. */
static int	(*server_putmessage) (char type, const char *body, size_t length);


void
herald_frames_init(void)
{
	server_putmessage = PqCommMethods->putmessage;
}

/*
 * Other code may have put messages of unknown size there, such as the server's own
 * notifications.
 */
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

	HERALD_MAY_WAIT();

	/*
	 * Only a large herald.max_payload allows a message larger than the
	 * buffer.
	 */
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

	/* If the server's buffer is empty, it has room for this. */
	make_way();

	/* If the connection is lost, the server has noted it. */
	(void) pq_putmessage_v2(frames[0], frames + 1, used - 1);
	unsent += used;
	used = 0;
}

/* Conversion to another encoding may lengthen the body, up to this factor. */
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

bool
herald_frames_has_room(void)
{
	struct pollfd client = {.fd = MyProcPort->sock,.events = POLLOUT};

	HERALD_MAY_WAIT();
	return herald_frames_go_out() && poll(&client, 1, 0) > 0;
}

/*
 * pq_flush() does not process ProcSignalBarriers while it waits for the socket.  The promotion of a standby, from 19
 * on, and DROP DATABASE wait for such a barrier, and so would wait for the client.
 */
void
herald_frames_flush(void)
{
	HERALD_MAY_WAIT();
	while (!herald_frames_go_out())
	{
		WaitEvent	event;

		ModifyWaitEvent(FeBeWaitSet, FeBeWaitSetSocketPos, WL_SOCKET_WRITEABLE, NULL);
		(void) WaitEventSetWait(FeBeWaitSet, -1, &event, 1, WAIT_EVENT_CLIENT_WRITE);
		if (event.events & WL_POSTMASTER_DEATH)
			proc_exit(1);
		if (event.events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			ProcessClientWriteInterrupt(true);

			/*
			 * As the server: also while cancel requests are held back, as
			 * they are between two statements.
			 */
			if (ProcSignalBarrierPending && InterruptHoldoffCount == 0 && CritSectionCount == 0)
				ProcessProcSignalBarrier();
		}
	}
}

/* If the client does not accept the server's buffer now, wait until it has, without the turn. */
static void
make_way(void)
{
	HERALD_MAY_WAIT();
	if (herald_frames_go_out())
		return;
	herald_turns_give_back();
	herald_frames_flush();
}
