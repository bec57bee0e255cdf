/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *	  The background worker that keeps the wakeups going.
 *
 * A listener that got a turn may be unable to use it: its client does not read,
 * its transaction has failed and waits for ROLLBACK, it is stopped in a
 * debugger.  The watchdog looks every few milliseconds; a turn that it finds
 * out twice in a row, with a listener that has not moved between, goes to the
 * next one, so that no chain stalls [W2].  There are twice as many turns then, for a
 * while: behind a hundred that cannot use theirs, others wait for a few rounds only.
 * A listener that has not moved for longer is marked as stalled: the log line about
 * it says so.
 *
 * It also dispatches what committing backends left over, deletes files, logs
 * listeners that lag, and looks after the turn to catch up with invalidations.
 *
 * While nothing is going on it sleeps until somebody hands out a turn.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/bell.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/waits.h"
#include "cache/invalidation/catch_up.h"
#include "core/stop_point.h"
#include "notify/dispatch/channel_map.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/position_channel.h"
#include "notify/storage/kept.h"
#include "notify/storage/room.h"
#include "notify/storage/spill.h"
#include "watchdog/lag.h"
#include "watchdog/watchdog.h"

/* So a turn is taken back after 10 to 20 ms without progress. */
#define LOOK_EVERY_MS		10

/* The log says of a listener that has not moved for this time that it makes no progress. */
#define STALLED_AFTER_MS	100

/* The watchdog goes to sleep when no turn was out for this time. */
#define AWAKE_MS			1000

/*
 * So many times as many turns as ever there are at the most.  Without a limit those of
 * listeners that only wait for a CPU would double until all want it at once.
 */
#define TURNS_TIMES_MAX		8

/* After so long in which no turn was taken back, there are as many as ever. */
#define CALM_MS				100

/* Even asleep it looks now and then, in case that it was not told. */
#define SLEEP_MS			10000

/* And more often while somebody is so far behind that there are files. */
#define SLEEP_WITH_FILES_MS	1000

/* So many sessions are told a new position in one look. */
#define POSITIONS_AT_ONCE	10

/* What is retained may be too old by then. */
#define EXPIRE_EVERY_MS		1000

/* What was seen of a listener when it was looked at last. */
typedef struct Seen
{
	uint32		serial;			/* the turn that it held */
	uint64		word;			/* its state and position... */
	uint64		since_ms;		/* ... and since when that has not changed */
} Seen;

/* herald_files has our temp_tablespaces. */
static bool tablespaces_known;

/* Nothing is kept beyond herald.max_queue_size as it is now. */
static bool limit_applied;

PGDLLEXPORT void herald_watchdog_main(Datum arg);

static bool look(Seen *seen, uint64 now_ms);
static void adapt_turns(bool rescued, uint64 now_ms);
static bool look_for_laggards(const Seen *seen, uint32 used, uint64 now_ms);
static bool tell_positions(const Seen *seen, uint32 used);
static bool look_at(uint32 slot, Seen *seen, uint64 now_ms, bool *is_active);
static long sleep_time(uint64 last_look_ms, uint64 last_active_ms);
static void apply_settings(void);
static void forget_watchdog(int code, Datum arg);


void
herald_watchdog_register(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_PostmasterStart,
		.bgw_restart_time = 1,
	};

	strlcpy(worker.bgw_name, "pg_herald watchdog", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pg_herald watchdog", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "pg_herald", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "herald_watchdog_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

void
herald_watchdog_main(Datum arg)
{
	uint64		last_active_ms = herald_clock_ms();
	uint64		last_look_ms = 0;
	uint64		last_expire_ms = 0;
	Seen	   *seen;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/* For the files that it may look into. */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "pg_herald watchdog");
	seen = MemoryContextAllocZero(TopMemoryContext, herald_wakeup->slots * sizeof(Seen));
	herald_channels_attach();
	before_shmem_exit(forget_watchdog, (Datum) 0);
	atomic_store_explicit(&herald_control->watchdog, herald_my_proc_number(),
						  memory_order_seq_cst);
	apply_settings();

	while (!ShutdownRequestPending)
	{
		uint64		now_ms = herald_clock_ms();
		bool		is_deleting;
		long		sleep_ms;

		/* Being told to dispatch does not shorten the time between two looks. */
		HERALD_STOP_POINT("watchdog-look");
		if (now_ms - last_look_ms >= LOOK_EVERY_MS)
		{
			if (look(seen, now_ms))
				last_active_ms = now_ms;
			last_look_ms = now_ms;
		}
		herald_dispatch_run();

		herald_turns_pump_all();
		herald_spill_trim();
		if (now_ms - last_expire_ms >= EXPIRE_EVERY_MS)
		{
			herald_kept_expire();
			last_expire_ms = now_ms;
		}

		/* What is left to dispatch comes first; it sets the latch. */
		is_deleting = !MyLatch->is_set && herald_spill_delete_some();

		/* Never waits for a process that writes. */
		if (!tablespaces_known)
			tablespaces_known = herald_spill_set_tablespaces(GetConfigOption("temp_tablespaces", false, false));
		if (!limit_applied)
			limit_applied = herald_spill_apply_limit();

		sleep_ms = sleep_time(last_look_ms, last_active_ms);
		if (sleep_ms == SLEEP_MS)
		{
			/* [D4] Say so, and look once more: pairs with herald_bell_ring() */
			atomic_exchange_explicit(&herald_control->watchdog_sleeps, 1, memory_order_seq_cst);
			if (atomic_load_explicit(&herald_wakeup->turns_out, memory_order_seq_cst) > 0 ||
				herald_wakeup_is_anyone_waiting(herald_wakeup) ||
				(uint32) herald_inval_turn(herald_inval_queue) != 0)
				sleep_ms = LOOK_EVERY_MS;
			else if (herald_spill_needs_trim())
				sleep_ms = SLEEP_WITH_FILES_MS;
		}

		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  is_deleting ? 0 : sleep_ms, herald_wait(HERALD_WAIT_WATCHDOG)) & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			last_active_ms = herald_clock_ms();
		}
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			apply_settings();
		}
	}

	/* Not 0, which would mean that it is not to be started again. */
	proc_exit(1);
}

/* Look at every listener.  True: something is going on. */
static bool
look(Seen *seen, uint64 now_ms)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_relaxed);
	bool		is_active = atomic_load_explicit(&herald_wakeup->turns_out,
												 memory_order_seq_cst) > 0;
	bool		rescued = false;

	for (uint32 slot = 0; slot < used; slot++)
		rescued |= look_at(slot, &seen[slot], now_ms, &is_active);
	adapt_turns(rescued, now_ms);
	if (rescued)
		herald_turns_pump_all();
	is_active |= look_for_laggards(seen, used, now_ms);
	is_active |= herald_invalidation_look();
	is_active |= herald_room_pass_over();
	is_active |= tell_positions(seen, used);
	return is_active;
}

/*
 * Once nobody waits for a turn: to report one reads files and writes to the log.  Each look
 * reports one at the most, and begins where the last one ended.
 */
static bool
look_for_laggards(const Seen *seen, uint32 used, uint64 now_ms)
{
	static uint32 slot;
	bool		is_active = false;

	for (uint32 i = 0; i < used; i++)
	{
		slot = (slot + 1) % used;
		switch (herald_lag_look(slot, seen[slot].word, now_ms))
		{
			case HERALD_LAG_NONE:
				break;
			case HERALD_LAG_MAY_BEGIN:
				is_active = true;
				break;
			case HERALD_LAG_REPORTED:
				return true;
		}
	}
	return is_active;
}

static void
adapt_turns(bool rescued, uint64 now_ms)
{
	static uint64 rescued_ms;	/* when last; 0: there are as many turns as ever */
	uint32		turns = atomic_load_explicit(&herald_wakeup->turns_max, memory_order_relaxed);

	if (rescued)
	{
		rescued_ms = now_ms;
		if (turns < herald_settings_turns() * TURNS_TIMES_MAX)
			atomic_store_explicit(&herald_wakeup->turns_max, turns * 2, memory_order_relaxed);
	}
	else if (rescued_ms != 0 && now_ms - rescued_ms >= CALM_MS)
	{
		rescued_ms = 0;
		atomic_store_explicit(&herald_wakeup->turns_max, herald_settings_turns(), memory_order_relaxed);
	}
}

/* Each look goes on with the slots where the last one ended.  True: there may be more. */
static bool
tell_positions(const Seen *seen, uint32 used)
{
	static uint32 slot;
	int			told = 0;

	herald_position_channel_begin_look();
	for (uint32 i = 0; i < used && told < POSITIONS_AT_ONCE; i++)
	{
		slot = (slot + 1) % used;
		told += herald_position_channel_look(slot, seen[slot].word);
	}
	return told > 0;
}

/* True: its turn was taken back. */
static bool
look_at(uint32 slot, Seen *seen, uint64 now_ms, bool *is_active)
{
	HeraldTurn *turn = herald_wakeup_turn(herald_wakeup, slot);
	uint64		word = atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot),
											memory_order_relaxed);
	uint32		serial = atomic_load_explicit(&turn->serial, memory_order_relaxed);
	bool		rescued = false;

	if (word != seen->word)
	{
		seen->word = word;
		seen->since_ms = now_ms;
		*is_active = true;
	}
	else
	{
		if (herald_word_state(word) != HERALD_LISTENER_PENDING &&
			herald_listener_is_pending(word) &&
			now_ms - seen->since_ms >= STALLED_AFTER_MS)
			atomic_store_explicit(&turn->stalled, 1, memory_order_relaxed);

		if (serial == seen->serial)
			rescued = herald_wakeup_rescue(herald_wakeup, slot, serial);
	}
	seen->serial = serial;

	if (rescued)
		herald_shared_count(HERALD_COUNT_TURNS_RESCUED, 1);
	return rescued;
}

/* Until the next look; SLEEP_MS: nothing is going on. */
static long
sleep_time(uint64 last_look_ms, uint64 last_active_ms)
{
	uint64		now_ms = herald_clock_ms();
	uint64		since_look_ms = now_ms - last_look_ms;

	if (now_ms - last_active_ms > AWAKE_MS)
		return SLEEP_MS;
	return since_look_ms < LOOK_EVERY_MS ? (long) (LOOK_EVERY_MS - since_look_ms) : 1;
}

static void
apply_settings(void)
{
	atomic_store_explicit(&herald_wakeup->turns_max, herald_settings_turns(),
						  memory_order_relaxed);
	tablespaces_known = limit_applied = false;
	herald_turns_pump();
}

static void
forget_watchdog(int code, Datum arg)
{
	atomic_store_explicit(&herald_control->watchdog, -1, memory_order_seq_cst);
}
