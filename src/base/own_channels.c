/*-------------------------------------------------------------------------
 *
 * own_channels.c
 *	  The channels on which pg_herald itself sends notifications to the sessions that listen to
 *	  them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/own_channels.h"


bool
herald_own_channel(const char *channel)
{
	return strcmp(channel, HERALD_RESET_CHANNEL) == 0 ||
		strcmp(channel, HERALD_POSITION_CHANNEL) == 0;
}

char *
herald_own_channel_native_name(const char *channel)
{
	static uint64 random;

	while (random == 0)
		if (!pg_strong_random(&random, sizeof(random)))
			elog(ERROR, "could not generate random bytes");
	return psprintf("%s_%016llx", channel, (unsigned long long) random);
}
