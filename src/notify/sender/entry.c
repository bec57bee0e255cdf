/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Writing an entry of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bswap.h"

#include "notify/dispatch/channel_map.h"
#include "notify/sender/entry.h"


void
herald_entry_write(HeraldEntry *entry, const char *channel, size_t channel_length,
						   const char *payload, size_t payload_length)
{
	uint64		length = herald_entry_length(channel_length, payload_length);
	int32		pid = pg_hton32(MyProcPid);
	char	   *body = entry->body;

	entry->length = length;
	entry->channel_hash = herald_channels_hash(channel, channel_length);
	entry->channel_length = channel_length;
	entry->body_length = HERALD_BODY_PID + channel_length + 1 + payload_length + 1;

	memcpy(body, &pid, HERALD_BODY_PID);
	body += HERALD_BODY_PID;
	memcpy(body, channel, channel_length);
	body += channel_length;
	*body++ = '\0';
	memcpy(body, payload, payload_length);
	body += payload_length;

	/* The NUL, and what is left up to the next entry. */
	memset(body, 0, (char *) entry + length - body);
}
