/*-------------------------------------------------------------------------
 *
 * channel_hash.c
 *	  The hash of a channel.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "base/channel_hash.h"
#include "base/shared.h"


/*
 * One process looks up channels for all sessions.  A user that knew the seed could choose
 * channel names with equal hashes, and so make each lookup compare all of them.
 */
uint32
herald_channel_hash(const char *channel, size_t length)
{
	return (uint32) hash_bytes_extended((const unsigned char *) channel, (int) length,
										herald_control->channel_seed);
}

HeraldChannelName
herald_channel_name(const char *channel)
{
	HeraldChannelName name;

	strlcpy(name.name, channel, NAMEDATALEN);
	name.hash = herald_channel_hash(channel, strlen(channel));
	return name;
}
