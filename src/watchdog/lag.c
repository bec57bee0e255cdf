/*-------------------------------------------------------------------------
 *
 * lag.c
 *	  How far listeners are behind, and a log line about each that is far behind.
 *
 * A listener lags from when it has been more than herald.log_min_lag behind for a
 * second, until it is less than half of that behind: so it is logged once,
 * even if it hovers about the limit, and not at all for a burst that it reads
 * at once.  The second also gives the watchdog time to tell a listener that
 * does not move from one that is slow.
 *
 * A listener from which something was given up is not behind any more: it is told
 * so when it reads, and goes on at the end of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/storage/kept.h"
#include "notify/storage/large_files.h"
#include "watchdog/lag.h"

#define LAGS_AFTER_MS		1000

/* In the watchdog: since when each listener has been beyond the limit; 0: it is not. */
static uint64 *beyond_since_ms;

static void report(uint32 slot, uint64 word, uint64 bytes, TimestampTz since);
static const char *application_of(int pid, char *buffer, size_t size);


bool
herald_lag_since(uint64 word, TimestampTz *since)
{
	return herald_listener_is_pending(word) && herald_kept_since(herald_word_position(word), since);
}

HeraldLag
herald_lag_look(uint32 slot, uint64 word, uint64 now_ms)
{
	_Atomic int64_t *lagging_since = &herald_slots[slot].lagging_since;
	bool		is_lagging = atomic_load_explicit(lagging_since, memory_order_relaxed) != 0;
	uint64		limit = (uint64) Max(herald_log_min_lag_kb, 0) * 1024;
	TimestampTz since;
	uint64		bytes;

	if (beyond_since_ms == NULL)
		beyond_since_ms = MemoryContextAllocZero(TopMemoryContext,
											  herald_wakeup->slots * sizeof(uint64));
	bytes = herald_lag_bytes(word);
	if (bytes == 0 || herald_log_min_lag_kb < 0 || bytes <= (is_lagging ? limit / 2 : limit))
	{
		beyond_since_ms[slot] = 0;
		if (is_lagging)
			atomic_store_explicit(lagging_since, 0, memory_order_relaxed);
		return HERALD_LAG_NONE;
	}
	if (is_lagging)
		return HERALD_LAG_NONE;

	if (beyond_since_ms[slot] == 0)
		beyond_since_ms[slot] = now_ms;
	if (now_ms - beyond_since_ms[slot] < LAGS_AFTER_MS)
		return HERALD_LAG_MAY_BEGIN;

	/* First of all: after an error we would come here again and again. */
	since = GetCurrentTimestamp();
	atomic_store_explicit(lagging_since, since, memory_order_relaxed);
	(void) herald_lag_since(word, &since);
	atomic_store_explicit(lagging_since, since, memory_order_relaxed);
	report(slot, word, bytes, since);
	return HERALD_LAG_REPORTED;
}

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
	return dispatched - position + herald_large_files_bytes_between(position, dispatched);
}

static void
report(uint32 slot, uint64 word, uint64 bytes, TimestampTz since)
{
	int			pid = atomic_load(&herald_slots[slot].pid);
	unsigned	state = herald_word_state(word);
	bool		is_busy = state == HERALD_LISTENER_BUSY_PENDING;
	bool		is_stalled = atomic_load_explicit(&herald_wakeup_turn(herald_wakeup, slot)->stalled,
												  memory_order_relaxed) != 0;
	char		application[NAMEDATALEN];

	ereport(LOG_SERVER_ONLY,
			(errmsg("listener with PID %d is %llu kB of notifications behind",
					pid, (unsigned long long) bytes / 1024),
			 errdetail("Application \"%s\" has not read notifications committed since %s. %s",
					   application_of(pid, application, sizeof(application)),
					   timestamptz_to_str(since),
					   is_busy ? "The session is in a transaction." :
					   is_stalled ? "The session makes no progress." :
					   "The session reads more slowly than notifications arrive."),
			 is_busy ?
			 errhint("It reads when the transaction ends. A listening session should not stay in a transaction.") :
			 is_stalled ?
			 errhint("Its client may not be reading from the connection. Check the client, or end the session with pg_terminate_backend().") :
			 errhint("Let the client do less work for each notification, or spread the notifications over several channels and listeners.")));
}

/* As it stands in pg_stat_activity; empty if the backend is gone. */
static const char *
application_of(int pid, char *buffer, size_t size)
{
	int			count = pgstat_fetch_stat_numbackends();

	buffer[0] = '\0';
	for (int i = 1; i <= count; i++)
	{
		PgBackendStatus *status = herald_backend_status(i);

		if (status->st_procpid == pid)
			strlcpy(buffer, status->st_appname, size);
	}
	pgstat_clear_backend_activity_snapshot();
	return buffer;
}
