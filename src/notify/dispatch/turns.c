/*-------------------------------------------------------------------------
 *
 * turns.c
 *	  Turns, which limit how many listeners are awake at a time.
 *
 * core/wakeup.c has the rules; this file sends the signals.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/shared.h"
#include "base/signal.h"
#include "base/wake_watchdog.h"
#include "notify/dispatch/turns.h"

static void pump(uint32 turns_at_most);


void
herald_turns_pump(void)
{
	pump(HERALD_ALL_TURNS);
}

void
herald_turns_pump_at_rest(void)
{
	if (herald_wakeup_pump_at_rest(herald_wakeup, herald_signal_notifications, NULL))
		herald_wake_watchdog_if_asleep();
}

/*
 * The loop is bounded: a listener that enters the set again meanwhile is left to the next
 * call.
 */
void
herald_turns_pump_all(void)
{
	for (uint32 signalled = 0; signalled < herald_wakeup->slots && herald_wakeup_can_pump(herald_wakeup);
		 signalled += HERALD_BESIDES_MAX)
		pump(HERALD_ALL_TURNS);
}

void
herald_turns_wake_without(void)
{
	pump(HERALD_NO_TURNS);
}

void
herald_turns_begin(void)
{
	pump(herald_watchdog_runs() ? 1 : HERALD_ALL_TURNS);
}

void
herald_turns_give_back(void)
{
	if (herald_wakeup_yield(herald_wakeup, herald_shared_my_slot()))
		pump(HERALD_ALL_TURNS);
}

static void
pump(uint32 turns_at_most)
{
	if (herald_wakeup_pump(herald_wakeup, turns_at_most, herald_signal_notifications, NULL))
		herald_wake_watchdog_if_asleep();
}
