/*-------------------------------------------------------------------------
 *
 * channel_hash.h
 *	  The hash of a channel, and its set.
 *
 * What is too much to store for each channel is stored for each set of channels.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CHANNEL_HASH_H
#define HERALD_CHANNEL_HASH_H

#include "postgres.h"

#include "miscadmin.h"

#include "core/large_table.h"

/*
 * The hash of a channel in the queue, in the channel map and in the listener's own table.  It
 * changes with each start of the server.
 */
extern uint32 herald_channel_hash(const char *channel, size_t length);

typedef struct HeraldChannelName
{
	uint32		hash;			/* herald_channel_hash() of the name */
	char		name[NAMEDATALEN];
} HeraldChannelName;

/* Of a channel of less than NAMEDATALEN bytes. */
extern HeraldChannelName herald_channel_name(const char *channel);

/* A subset of the HERALD_CHANNEL_SETS: a bit for each. */
typedef uint64 HeraldChannelSets;

#define HERALD_ALL_CHANNEL_SETS		PG_UINT64_MAX

StaticAssertDecl(HERALD_CHANNEL_SETS == 64, "a bit for each set");

/* The set of a channel of this database. */
static inline HeraldChannelSets
herald_channel_set(uint32 channel_hash)
{
	return UINT64CONST(1) << (channel_hash ^ herald_spread(MyDatabaseId)) % HERALD_CHANNEL_SETS;
}

#endif							/* HERALD_CHANNEL_HASH_H */
