/*-------------------------------------------------------------------------
 *
 * wal.h
 *	  A message of the WAL written again from what was read of it; for unit tests and fuzzer.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_WAL_H
#define HERALD_TEST_WAL_H

#include <stdlib.h>

#include "wal_message.h"

/* Maximum bytes that wal_write_back() writes, whatever was read from a text of this length. */
#define WAL_WRITTEN_MAX(length)	(512 + 8 * (size_t) (length))

/* Write a message again that was read from a text of `length` bytes. */
static inline size_t
wal_write_back(HeraldWalMessage message, size_t length, char *to)
{
	char	   *buffer = malloc(length);
	HeraldWalNotification found;
	size_t		used = 0;

	switch (message.kind)
	{
		case HERALD_WAL_NOTIFICATIONS:
			used = herald_wal_write_head(to, message.run, message.part, message.first, message.sender);
			for (bool is_first = true; herald_wal_next(&message, &found, buffer); is_first = false)
				used += herald_wal_write_notification(to + used, is_first, found.channel, found.channel_length,
													  found.payload, found.payload_length);
			used += herald_wal_write_tail(to + used, message.is_last);
			herald_wal_set_place(to, message.place);
			break;
		case HERALD_WAL_ANCHOR:
			used = herald_wal_write_anchor(to, message.run);
			break;
		case HERALD_WAL_SETTING:
			if (herald_wal_next(&message, &found, buffer))
				used = herald_wal_write_setting(to, message.run, found.channel, found.channel_length,
												message.logged);
			break;
	}
	free(buffer);
	return used;
}

#endif							/* HERALD_TEST_WAL_H */
