/*-------------------------------------------------------------------------
 *
 * laggards.c
 *	  Logs listeners that are far behind.
 *
 * A listener lags when it is more than herald.log_min_lag behind at two looks in a row, until
 * it is less than half of that behind: so it is logged once, even if it moves around the limit,
 * and not at all for a burst that it reads at once.  If it has read nothing between the two
 * looks, the line says that it makes no progress.
 *
 * A listener whose messages were given up is not behind any more: it is notified of that when it
 * reads, and goes on at the end of the queue.
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
#include "notify/position/lag.h"
#include "workers/laggards.h"

/* In the housekeeper: the word of each listener that was beyond the limit at the last look, or 0. */
static uint64 *beyond;

static void look_at(uint32 slot);
static void report(uint32 slot, uint64 word, bool is_stalled);
static const char *application_of(int pid, char *buffer, size_t size);


void
herald_laggards_look(void)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_relaxed);

	if (beyond == NULL)
		beyond = MemoryContextAllocZero(TopMemoryContext, herald_wakeup->slots * sizeof(uint64));
	for (uint32 slot = 0; slot < used; slot++)
		look_at(slot);
}

static void
look_at(uint32 slot)
{
	_Atomic int64_t *lagging_since = &herald_slots[slot].lagging_since;
	uint64		word = atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot), memory_order_relaxed);
	bool		is_lagging = atomic_load_explicit(lagging_since, memory_order_relaxed) != 0;
	uint64		limit = (uint64) Max(herald_log_min_lag_kb, 0) * 1024;
	uint64		bytes = herald_lag_bytes(word);
	uint64		before = beyond[slot];

	if (bytes == 0 || herald_log_min_lag_kb < 0 || bytes <= (is_lagging ? limit / 2 : limit))
	{
		beyond[slot] = 0;
		if (is_lagging)
			atomic_store_explicit(lagging_since, 0, memory_order_relaxed);
		return;
	}
	beyond[slot] = word;
	if (!is_lagging && before != 0)
		report(slot, word, word == before);
}

static void
report(uint32 slot, uint64 word, bool is_stalled)
{
	int			pid = atomic_load(&herald_slots[slot].pid);
	bool		is_busy = herald_word_state(word) == HERALD_LISTENER_BUSY_PENDING;
	uint64		bytes = herald_lag_bytes(word);
	TimestampTz since = GetCurrentTimestamp();
	char		application[NAMEDATALEN];

	(void) herald_lag_since(word, &since);
	/* Before the log: if an error there restarts the worker, it must not log this listener again. */
	atomic_store_explicit(&herald_slots[slot].lagging_since, since, memory_order_relaxed);

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
