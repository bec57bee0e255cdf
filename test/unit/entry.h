/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Entries of the queue, written by hand; for unit tests, stress and fuzzer.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_ENTRY_H
#define HERALD_TEST_ENTRY_H

#include <string.h>

#include "queue_layout.h"

/* Each function writes an entry, and returns its length.  `to` has room for it. */

static inline uint64_t
entry_write_head(char *to, HeraldEntryKind kind, uint64_t body_length)
{
	uint64_t	length = HERALD_ALIGN_UP(sizeof(HeraldEntry) + body_length);
	HeraldEntry *entry = (HeraldEntry *) to;

	memset(to, 0, length);
	entry->length = (uint32_t) length;
	entry->body_length = (uint32_t) body_length;
	entry->kind = (uint16_t) kind;
	return length;
}

static inline uint64_t
entry_write_strings(char *to, HeraldEntryKind kind, const char *channel,
					const char *payload, size_t payload_length)
{
	size_t		channel_length = strlen(channel);
	uint64_t	length = entry_write_head(to, kind, HERALD_BODY_PID + channel_length + 1 +
										  payload_length + 1);
	HeraldEntry *entry = (HeraldEntry *) to;

	entry->channel_hash = herald_hash(channel, channel_length, 0);
	entry->channel_length = (uint16_t) channel_length;
	memcpy(entry->body + HERALD_BODY_PID, channel, channel_length);
	memcpy(entry->body + HERALD_BODY_PID + channel_length + 1, payload, payload_length);
	return length;
}

static inline uint64_t
entry_write(char *to, const char *channel, const char *payload, size_t payload_length)
{
	return entry_write_strings(to, HERALD_ENTRY_NOTIFICATION, channel, payload, payload_length);
}

static inline uint64_t
entry_write_channel(char *to, const char *channel)
{
	return entry_write_strings(to, HERALD_ENTRY_CHANNEL, channel, "", 0);
}

static inline uint64_t
entry_write_all_listeners(char *to)
{
	return entry_write_head(to, HERALD_ENTRY_ALL_LISTENERS, 0);
}

static inline uint64_t
entry_write_file(char *to, uint64_t number, uint64_t length)
{
	HeraldFileReference file = {number, length};

	(void) entry_write_head(to, HERALD_ENTRY_FILE, sizeof(file));
	memcpy(((HeraldEntry *) to)->body, &file, sizeof(file));
	return ((HeraldEntry *) to)->length;
}

static inline uint64_t
entry_write_commit(char *to, uint64_t run, uint64_t place)
{
	HeraldCommitId commit = {.run = run,.place = place};

	(void) entry_write_head(to, HERALD_ENTRY_COMMIT, sizeof(commit));
	memcpy(((HeraldEntry *) to)->body, &commit, sizeof(commit));
	return ((HeraldEntry *) to)->length;
}

#endif							/* HERALD_TEST_ENTRY_H */
