/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Writes an entry of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bswap.h"

#include "base/channel_hash.h"
#include "base/entry.h"

static uint64 write_strings(HeraldEntry *entry, HeraldEntryKind kind, uint32 number,
							const char *channel, size_t channel_length,
							const char *payload, size_t payload_length);
static uint64 write_head(HeraldEntry *entry, HeraldEntryKind kind, uint64 body_length);


uint64
herald_entry_write(HeraldEntry *entry, const char *channel, size_t channel_length,
				   const char *payload, size_t payload_length)
{
	return write_strings(entry, HERALD_ENTRY_NOTIFICATION, pg_hton32(MyProcPid),
						 channel, channel_length, payload, payload_length);
}

uint64
herald_entry_write_file(HeraldEntry *entry, uint64 number, uint64 length)
{
	HeraldFileReference file = {number, length};

	write_head(entry, HERALD_ENTRY_FILE, sizeof(file));
	memcpy(entry->body, &file, sizeof(file));
	return entry->length;
}

uint64
herald_entry_write_channel(HeraldEntry *entry, const char *channel, uint32 notifications)
{
	return write_strings(entry, HERALD_ENTRY_CHANNEL, notifications, channel, strlen(channel), "", 0);
}

uint64
herald_entry_write_all_listeners(HeraldEntry *entry)
{
	return write_head(entry, HERALD_ENTRY_ALL_LISTENERS, 0);
}

uint64
herald_entry_write_commit(HeraldEntry *entry, HeraldCommitId commit)
{
	write_head(entry, HERALD_ENTRY_COMMIT, sizeof(commit));
	memcpy(entry->body, &commit, sizeof(commit));
	return entry->length;
}

/* number: the pid in network order, or the number of notifications. */
static uint64
write_strings(HeraldEntry *entry, HeraldEntryKind kind, uint32 number,
			  const char *channel, size_t channel_length,
			  const char *payload, size_t payload_length)
{
	char	   *body = entry->body;

	write_head(entry, kind, HERALD_BODY_PID + channel_length + 1 + payload_length + 1);
	entry->channel_hash = herald_channel_hash(channel, channel_length);
	entry->channel_length = channel_length;

	memcpy(body, &number, HERALD_BODY_PID);
	body += HERALD_BODY_PID;
	memcpy(body, channel, channel_length);
	body += channel_length;
	*body++ = '\0';
	memcpy(body, payload, payload_length);
	body[payload_length] = '\0';
	return entry->length;
}

/* Write the header of an entry without a channel, and zero the padding after its body. */
static uint64
write_head(HeraldEntry *entry, HeraldEntryKind kind, uint64 body_length)
{
	uint64		length = HERALD_ALIGN_UP(sizeof(HeraldEntry) + body_length);

	memset((char *) entry + length - HERALD_ALIGN, 0, HERALD_ALIGN);
	entry->length = length;
	entry->channel_hash = 0;
	entry->body_length = body_length;
	entry->channel_length = 0;
	entry->kind = kind;
	return length;
}
