/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  An entry of the queue, written by hand; for the unit tests and the fuzzer.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_ENTRY_H
#define HERALD_TEST_ENTRY_H

#include <string.h>

#include "queue_layout.h"

/* Write an entry; returns its length.  `to` has room for it. */
static inline uint64_t
entry_write(char *to, const char *channel, const char *payload, size_t payload_length)
{
	size_t		channel_length = strlen(channel);
	uint64_t	length = herald_entry_length(channel_length, payload_length);
	HeraldEntry *entry = (HeraldEntry *) to;

	memset(to, 0, length);
	entry->length = (uint32_t) length;
	entry->channel_hash = herald_hash(channel, channel_length, 0);
	entry->channel_length = (uint32_t) channel_length;
	entry->body_length = (uint32_t) (HERALD_BODY_PID + channel_length + 1 + payload_length + 1);
	memcpy(entry->body + HERALD_BODY_PID, channel, channel_length);
	memcpy(entry->body + HERALD_BODY_PID + channel_length + 1, payload, payload_length);
	return length;
}

#endif							/* HERALD_TEST_ENTRY_H */
