/*-------------------------------------------------------------------------
 *
 * catch_up.c
 *	  Makes one backend at a time catch up with invalidations.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/shared.h"
#include "base/signal.h"
#include "base/wake_watchdog.h"
#include "core/stop_point.h"
#include "inval/catch_up.h"


void
herald_catch_up_wake(int32 slot)
{
	if (slot == HERALD_INVAL_NOBODY)
		return;
	herald_wake_watchdog_if_asleep();
	herald_shared_count(HERALD_COUNT_CATCH_UPS, 1);
	HERALD_HOLD_POINT("catch-up-handed-out");

	/* If the backend has exited meanwhile, the watchdog takes the turn back. */
	(void) herald_signal_reason((uint32) slot, HERALD_REASON_CATCH_UP);
}

/*
 * If two checks in a row find the same turn, with nothing read in between, the turn goes to
 * the next backend.
 */
bool
herald_catch_up_look(void)
{
	static uint64 seen_turn;
	static uint64 seen_word;
	uint64		turn = herald_inval_turn(herald_inval_queue);
	uint64		word;

	if ((uint32) turn == 0)
		return false;

	word = atomic_load_explicit(&herald_inval_queue->readers[(uint32) turn - 1].word,
								memory_order_relaxed);
	if (turn == seen_turn && word == seen_word)
	{
		int32		next = herald_inval_rescue(herald_inval_queue, turn);

		if (herald_inval_turn(herald_inval_queue) != turn)
			herald_shared_count(HERALD_COUNT_TURNS_RESCUED, 1);
		herald_catch_up_wake(next);
	}
	seen_turn = turn;
	seen_word = word;
	return true;
}
