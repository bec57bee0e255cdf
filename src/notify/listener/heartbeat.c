/*-------------------------------------------------------------------------
 *
 * heartbeat.c
 *	  A session's position at regular times, also when nothing happens (herald.heartbeat).
 *
 * The watchdog watches the time, and signals the session, which then sends its position in an empty transaction, as
 * after a delivery.  No timer of the session does it: the server stops all of these after an error, and
 * after an error outside of a transaction, such as an invalid character in a statement, none of our
 * callbacks runs in which it could be started again.
 *
 * A session in a transaction is not signalled: it looks at the end of the transaction (session.c).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/signal.h"
#include "base/wake_watchdog.h"
#include "notify/listener/heartbeat.h"

/*
 * A position is due when this part of its period is left: so it is not late where the watchdog,
 * or the session, has to wait for a CPU.
 */
#define EARLY_PART	8

/* The watchdog waits for this part of the period, so that it looks once for several sessions. */
#define GATHER_PART	64

/* In the watchdog: the time to look again; 0: at once. */
static uint64 next_ms;

static uint64 due_at(const HeraldSlot *slot, uint32 period_ms);


void
herald_heartbeat_told(void)
{
	herald_heartbeat_set_period((uint32) herald_heartbeat_ms);
	herald_heartbeat_skip();
}

void
herald_heartbeat_set_period(uint32 period_ms)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	uint32		before = atomic_load_explicit(&mine->heartbeat_ms, memory_order_relaxed);

	if (period_ms == before)
		return;
	if (before == 0)
		atomic_store(&mine->told_at_ms, herald_clock_ms());
	atomic_store(&mine->heartbeat_ms, period_ms);
	if (period_ms == 0)
		return;

	/* [D4] pairs with the exchange in herald_watchdog_main() */
	atomic_store(&herald_control->heartbeats_changed, 1);
	herald_wake_watchdog_if_asleep();
}

void
herald_heartbeat_end(void)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];

	herald_heartbeat_set_period(0);
	if (atomic_load_explicit(&mine->told_at_ms, memory_order_relaxed) != 0)
		atomic_store_explicit(&mine->told_at_ms, 0, memory_order_relaxed);
}

bool
herald_heartbeat_is_due(void)
{
	const HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	uint32		period_ms = atomic_load_explicit(&mine->heartbeat_ms, memory_order_relaxed);

	return period_ms != 0 && due_at(mine, period_ms) <= herald_clock_ms();
}

void
herald_heartbeat_skip(void)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];

	atomic_store_explicit(&mine->told_at_ms, herald_clock_ms(), memory_order_relaxed);
}

static uint64
due_at(const HeraldSlot *slot, uint32 period_ms)
{
	return atomic_load_explicit(&slot->told_at_ms, memory_order_relaxed) + period_ms - period_ms / EARLY_PART;
}

bool
herald_heartbeat_begin_look(uint64 now_ms)
{
	if (now_ms < next_ms && !herald_heartbeat_any_new())
		return false;
	atomic_store(&herald_control->heartbeats_changed, 0);
	next_ms = PG_UINT64_MAX;
	return true;
}

/*
 * The session may end its transaction just when its position becomes due: then neither of the two looks finds that, and
 * the next one comes soon.
 */
bool
herald_heartbeat_look(uint32 slot, uint64 word, uint64 now_ms)
{
	const HeraldSlot *listener = &herald_slots[slot];
	uint32		period_ms = atomic_load(&listener->heartbeat_ms);
	uint64		due_ms;

	if (period_ms == 0)
		return false;
	due_ms = due_at(listener, period_ms);
	if (due_ms > now_ms)
	{
		next_ms = Min(next_ms, due_ms + period_ms / GATHER_PART);
		return false;
	}
	next_ms = Min(next_ms, now_ms + period_ms / EARLY_PART);
	return herald_signal_idle(slot, word);
}

void
herald_heartbeat_end_early(void)
{
	next_ms = 0;
}

bool
herald_heartbeat_any_new(void)
{
	return atomic_load(&herald_control->heartbeats_changed) != 0;
}

uint64
herald_heartbeat_rest_ms(uint64 now_ms)
{
	return next_ms > now_ms ? next_ms - now_ms : 0;
}
