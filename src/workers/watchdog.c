/*-------------------------------------------------------------------------
 *
 * watchdog.c
 *	  The background worker that keeps the wakeups going.
 *
 * A listener that got a turn may be unable to use it: its client does not read, its transaction
 * has failed and waits for ROLLBACK, it is stopped in a debugger.  The watchdog looks every few
 * milliseconds.  If two looks find the same turn, and its listener has not moved, the turn goes
 * to the next listener, so that no chain stalls [W2].
 *
 * It also dispatches what committing backends left over, gives positions to sessions that ask
 * for them, and sends heartbeats.  It does no I/O: what may take long is done by the housekeeper.
 *
 * When nothing was going on for a second, it looks once a second, and is woken for a turn, for batches that are
 * left over, for old positions, or for a new heartbeat.  It wakes by itself for the next heartbeat.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/channels/channel_map.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/heartbeat.h"
#include "notify/listener/position_channel.h"
#include "workers/watchdog.h"
#include "workers/worker.h"

/* So a turn is taken back after 10 to 20 ms without progress. */
#define LOOK_EVERY_MS		10

/* Maximum number of sessions that get a new position in one look. */
#define POSITIONS_AT_ONCE	10

/* The same for heartbeats, which sessions have asked for. */
#define HEARTBEATS_AT_ONCE	64

/* A listener as it was at the last look. */
typedef struct Seen
{
	uint64		word;			/* its state and position */
	uint32		turn;			/* the serial number of its turn; 0: it had
								 * none */
} Seen;

PGDLLEXPORT void herald_watchdog_main(Datum arg);

static bool look(Seen *seen, uint64 now_ms);
static bool tell_positions(uint32 used);
static void send_heartbeats(uint32 used, uint64 now_ms);
static bool is_anything_awaited(void);
static long sleep_time(uint64 last_look_ms, uint64 last_active_ms);
static void apply_settings(void);
static void forget_watchdog(int code, Datum arg);


void
herald_watchdog_register(void)
{
	(void) herald_worker_register("pg_herald watchdog", "herald_watchdog_main");
}

void
herald_watchdog_main(Datum arg)
{
	uint64		last_active_ms = herald_clock_ms();
	uint64		last_look_ms = 0;
	Seen	   *seen;

	herald_worker_begin(HERALD_WORKER_WATCHDOG);
	seen = MemoryContextAllocZero(TopMemoryContext, herald_wakeup->slots * sizeof(Seen));
	herald_channels_attach();
	before_shmem_exit(forget_watchdog, (Datum) 0);
	atomic_store_explicit(&herald_control->watchdog, herald_my_proc_number(),
						  memory_order_seq_cst);
	apply_settings();

	while (!ShutdownRequestPending)
	{
		uint64		now_ms = herald_clock_ms();
		long		sleep_ms;

		/* A wakeup to dispatch does not shorten the time between two looks. */
		HERALD_STOP_POINT("watchdog-look");
		if (now_ms - last_look_ms >= LOOK_EVERY_MS)
		{
			if (look(seen, now_ms))
				last_active_ms = now_ms;
			last_look_ms = now_ms;
		}
		herald_dispatch_run();
		herald_turns_pump_all();

		sleep_ms = sleep_time(last_look_ms, last_active_ms);
		if (sleep_ms == HERALD_IDLE_MS)
		{
			/*
			 * [D4] Announce the sleep, then check again: pairs with
			 * herald_wake_watchdog_if_asleep()
			 */
			atomic_exchange_explicit(&herald_control->watchdog_sleeps, 1, memory_order_seq_cst);
			if (is_anything_awaited())
				sleep_ms = LOOK_EVERY_MS;
			else
				sleep_ms = (long) Min(HERALD_IDLE_MS, Max(LOOK_EVERY_MS, herald_heartbeat_rest_ms(herald_clock_ms())));
		}
		if (herald_worker_wait(HERALD_WAIT_WATCHDOG, sleep_ms, apply_settings))
			last_active_ms = herald_clock_ms();
	}
	herald_worker_end();
}

/* Look at every listener.  True: something is going on. */
static bool
look(Seen *seen, uint64 now_ms)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_relaxed);
	bool		is_active = atomic_load_explicit(&herald_wakeup->turns_out, memory_order_seq_cst) > 0;
	int			rescued = 0;

	for (uint32 slot = 0; slot < used; slot++)
	{
		Seen		now = {
			.word = atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot), memory_order_relaxed),
			.turn = atomic_load_explicit(&herald_wakeup_turn(herald_wakeup, slot)->serial, memory_order_relaxed),
		};

		if (now.word != seen[slot].word)
			is_active = true;
		else if (now.turn == seen[slot].turn)
			rescued += herald_wakeup_rescue(herald_wakeup, slot, now.turn);
		seen[slot] = now;
	}
	if (rescued > 0)
	{
		herald_shared_count(HERALD_COUNT_TURNS_RESCUED, rescued);
		herald_turns_wake_without();
	}
	is_active |= tell_positions(used);
	send_heartbeats(used, now_ms);
	return is_active;
}

/* Each look goes on with the slots where the last one ended.  True: a session was signalled. */
static bool
tell_positions(uint32 used)
{
	static uint32 slot;
	int			told = 0;

	herald_position_channel_begin_look();
	for (uint32 i = 0; i < used && told < POSITIONS_AT_ONCE; i++)
	{
		slot = (slot + 1) % used;
		told += herald_position_channel_look(slot, atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot),
																		memory_order_relaxed));
	}
	return told > 0;
}

/* Each look goes on with the slots where the last one ended. */
static void
send_heartbeats(uint32 used, uint64 now_ms)
{
	static uint32 slot;
	int			sent = 0;

	if (!herald_heartbeat_begin_look(now_ms))
		return;
	for (uint32 i = 0; i < used; i++)
	{
		if (sent == HEARTBEATS_AT_ONCE)
		{
			herald_heartbeat_end_early();
			break;
		}
		slot = (slot + 1) % used;
		sent += herald_heartbeat_look(slot, atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot),
																 memory_order_relaxed), now_ms);
	}
}

static bool
is_anything_awaited(void)
{
	return herald_heartbeat_any_new() ||
		atomic_load_explicit(&herald_wakeup->turns_out, memory_order_seq_cst) > 0 ||
		herald_wakeup_is_anyone_waiting(herald_wakeup);
}

/* Until the next look; HERALD_IDLE_MS: nothing is going on. */
static long
sleep_time(uint64 last_look_ms, uint64 last_active_ms)
{
	uint64		now_ms = herald_clock_ms();
	uint64		since_look_ms = now_ms - last_look_ms;

	if (now_ms - last_active_ms > HERALD_IDLE_MS)
		return HERALD_IDLE_MS;
	return since_look_ms < LOOK_EVERY_MS ? (long) (LOOK_EVERY_MS - since_look_ms) : 1;
}

static void
apply_settings(void)
{
	atomic_store_explicit(&herald_wakeup->turns_max, herald_settings_turns(),
						  memory_order_relaxed);
	atomic_store_explicit(&herald_wakeup->turns_at_rest, herald_settings_turns_at_rest(),
						  memory_order_relaxed);
	herald_turns_pump();
}

static void
forget_watchdog(int code, Datum arg)
{
	atomic_store_explicit(&herald_control->watchdog, -1, memory_order_seq_cst);
}
