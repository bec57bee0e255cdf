/*-------------------------------------------------------------------------
 *
 * client_message.h
 *	  Tells one message of the client from the next.
 *
 * The server stores the arrival time of each message except Sync.  A transaction that it runs by
 * itself does not change that time; nor do the transactions of one message, such as a loop on the
 * server with COMMIT in it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLIENT_MESSAGE_H
#define HERALD_CLIENT_MESSAGE_H

#include "postgres.h"

#include "access/xact.h"

/* Note the message that is served now.  True: it is another one than the noted one. */
static inline bool
herald_note_client_message(TimestampTz *noted)
{
	TimestampTz before = *noted;

	*noted = GetCurrentStatementStartTimestamp();
	return *noted != before;
}

#endif							/* HERALD_CLIENT_MESSAGE_H */
