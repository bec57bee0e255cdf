/*-------------------------------------------------------------------------
 *
 * lag.c
 *	  How far a listener is behind.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/shared.h"
#include "notify/position/kept.h"
#include "notify/position/lag.h"


bool
herald_lag_has_missed(uint64 word)
{
	return herald_listener_is_pending(word) &&
		herald_word_position(word) < atomic_load(&herald_queue->lost);
}

uint64
herald_lag_bytes(uint64 word)
{
	HeraldPosition position = herald_word_position(word);
	HeraldPosition dispatched = atomic_load(&herald_queue->dispatched);

	if (!herald_listener_is_pending(word) || position >= dispatched || herald_lag_has_missed(word))
		return 0;
	return dispatched - position + herald_large_table_bytes_between(herald_large_table, position, dispatched);
}

bool
herald_lag_since(uint64 word, TimestampTz *since)
{
	return herald_listener_is_pending(word) && herald_kept_since(herald_word_position(word), since);
}
