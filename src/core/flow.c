/*-------------------------------------------------------------------------
 *
 * flow.c
 *	  Flow control: how far are the listeners that make progress behind?
 *
 * Only k listeners run at a time, against any number of senders, so that at
 * saturation the senders win the CPUs and the backlog grows without end.
 * Senders therefore look at the backlog before they add to it, and wait a
 * little where it is large.
 *
 * A listener that makes no progress must not slow down anybody.  One that is
 * in a transaction (BUSY) is not counted, nor is one that the watchdog has
 * found standing still (stalled), until it is seen to move; nor one that reads
 * what is no longer in the ring, and has a long way to go.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "flow.h"

static HeraldPosition compute_floor(HeraldLog *log, HeraldWakeup *wakeup,
									HeraldPosition dispatched);
static bool is_progressing(HeraldWakeup *wakeup, uint32_t slot, uint64_t word);


uint64_t
herald_flow_backlog(HeraldLog *log, HeraldWakeup *wakeup, uint64_t enough)
{
	HeraldPosition dispatched = atomic_load_explicit(&log->dispatched, memory_order_relaxed);
	HeraldPosition floor = atomic_load_explicit(&log->read_floor, memory_order_relaxed);

	/*
	 * Mostly the floor that was found last settles it, without looking at
	 * anyone.  Listeners move forward; one that is new among those that make
	 * progress may be below the floor, and is noticed when as much again as
	 * is allowed has been dispatched.
	 */
	if (dispatched <= floor || dispatched - floor <= enough)
		return dispatched > floor ? dispatched - floor : 0;

	/* A figure: nobody's memory depends on it, so its order does not matter. */
	floor = compute_floor(log, wakeup, dispatched);
	atomic_store_explicit(&log->read_floor, floor, memory_order_relaxed);
	return dispatched - floor;
}

static HeraldPosition
compute_floor(HeraldLog *log, HeraldWakeup *wakeup, HeraldPosition dispatched)
{
	HeraldPosition tail = atomic_load_explicit(&log->tail, memory_order_relaxed);
	HeraldPosition floor = dispatched;
	uint32_t	used = atomic_load_explicit(&wakeup->slots_used, memory_order_relaxed);

	for (uint32_t slot = 0; slot < used; slot++)
	{
		uint64_t	word = atomic_load_explicit(herald_wakeup_word(wakeup, slot),
												memory_order_relaxed);

		if (herald_word_position(word) < floor && herald_word_position(word) >= tail &&
			is_progressing(wakeup, slot, word))
			floor = herald_word_position(word);
	}
	return floor;
}

static bool
is_progressing(HeraldWakeup *wakeup, uint32_t slot, uint64_t word)
{
	switch ((HeraldListenerState) herald_word_state(word))
	{
		case HERALD_LISTENER_PENDING:
		case HERALD_LISTENER_SIGNALLED:
		case HERALD_LISTENER_PROCESSING:
		case HERALD_LISTENER_AGAIN:
			return atomic_load_explicit(&herald_wakeup_turn(wakeup, slot)->stalled,
										memory_order_relaxed) == 0;
		default:
			return false;
	}
}
