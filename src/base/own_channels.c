/*-------------------------------------------------------------------------
 *
 * own_channels.c
 *	  The channels on which pg_herald itself speaks to a session that listens there.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/own_channels.h"

#define RANDOM_BYTES	16


bool
herald_own_channel(const char *channel)
{
	return strcmp(channel, HERALD_RESET_CHANNEL) == 0 ||
		strcmp(channel, HERALD_POSITION_CHANNEL) == 0;
}

char *
herald_own_channel_native_name(const char *channel)
{
	static char suffix[2 * RANDOM_BYTES + 1];

	if (suffix[0] == '\0')
	{
		uint8		random[RANDOM_BYTES];

		if (!pg_strong_random(random, sizeof(random)))
			elog(ERROR, "could not generate random bytes");
		for (int i = 0; i < RANDOM_BYTES; i++)
			snprintf(suffix + 2 * (size_t) i, 3, "%02x", random[i]);
	}
	return psprintf("%s_%s", channel, suffix);
}
