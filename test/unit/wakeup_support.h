/*-------------------------------------------------------------------------
 *
 * wakeup_support.h
 *	  Shared by the tests of wakeup.c: listeners made by hand, signals recorded.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef WAKEUP_SUPPORT_H
#define WAKEUP_SUPPORT_H

#include "support.h"

#include "wakeup.h"

#define SLOTS	200				/* several words of the set, the last one used in part */

/* The slots that were signalled, in order. */
typedef struct Signals
{
	int			count;
	uint32_t	slots[4 * SLOTS];
} Signals;

static inline bool
record_signal(uint32_t slot, void *arg)
{
	Signals    *signals = arg;

	assert_true(signals->count < 4 * SLOTS);
	signals->slots[signals->count++] = slot;
	return true;
}

static inline HeraldWakeup *
wakeup_new(uint32_t slots, uint32_t turns_max)
{
	HeraldWakeup *wakeup = memory_new(herald_wakeup_memory(slots));

	herald_wakeup_init(wakeup, slots, turns_max);
	return wakeup;
}

/* All slots joined and idle, with nothing before `start` to read. */
static inline HeraldWakeup *
wakeup_new_idle(uint32_t slots, uint32_t turns_max, HeraldPosition start)
{
	HeraldWakeup *wakeup = wakeup_new(slots, turns_max);

	for (uint32_t slot = 0; slot < slots; slot++)
	{
		herald_wakeup_join(wakeup, slot, start);
		assert_false(herald_wakeup_rest(wakeup, slot));
	}
	return wakeup;
}

static inline unsigned
state_of(HeraldWakeup *wakeup, uint32_t slot)
{
	return herald_word_state(atomic_load(herald_wakeup_word(wakeup, slot)));
}

static inline uint32_t
turn_of(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load(&herald_wakeup_turn(wakeup, slot)->serial);
}

static inline _Atomic uint64_t *
set_of(HeraldWakeup *wakeup)
{
	return (_Atomic uint64_t *) herald_wakeup_turn(wakeup, wakeup->slots);
}

static inline bool
in_set(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load(&set_of(wakeup)[slot / 64]) >> (slot % 64) & 1;
}

static inline void
put_into_set(HeraldWakeup *wakeup, uint32_t slot)
{
	atomic_fetch_or(&set_of(wakeup)[slot / 64], UINT64_C(1) << (slot % 64));
}

/* [W2] The number of turns that are out is that of the serials in slots. */
static inline void
assert_turns(HeraldWakeup *wakeup, uint32_t out)
{
	uint32_t	held = 0;

	for (uint32_t slot = 0; slot < wakeup->slots; slot++)
		held += turn_of(wakeup, slot) != 0;
	assert_int_equal(held, out);
	assert_int_equal(atomic_load(&wakeup->turns_out), out);
}

static inline Signals
pump(HeraldWakeup *wakeup)
{
	Signals		signals = {0};
	bool		handed_out = herald_wakeup_pump(wakeup, HERALD_ALL_TURNS,
												record_signal, &signals);

	assert_int_equal(handed_out, signals.count > 0);
	return signals;
}

/* Mark a slot and pump: it must be signalled. */
static inline void
signal_slot(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition position)
{
	Signals		signals;

	assert_true(herald_wakeup_mark(wakeup, slot, position));
	signals = pump(wakeup);
	assert_int_equal(signals.count, 1);
	assert_int_equal(signals.slots[0], slot);
	assert_int_equal(state_of(wakeup, slot), HERALD_LISTENER_SIGNALLED);
	assert_int_not_equal(turn_of(wakeup, slot), 0);
}

/* A listener's whole pass; returns whether it had a turn to give back. */
static inline bool
read_all(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot)
{
	HeraldPosition from;
	HeraldPosition to;

	assert_true(herald_wakeup_begin(wakeup, queue, slot, &from, &to));
	assert_true(herald_wakeup_finish(wakeup, queue, slot, &to));
	return herald_wakeup_yield(wakeup, slot);
}

#endif							/* WAKEUP_SUPPORT_H */
