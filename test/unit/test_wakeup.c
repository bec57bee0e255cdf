/*-------------------------------------------------------------------------
 *
 * test_wakeup.c
 *	  Unit tests of wakeup.c: the wakeup set, turns, and what is needed.
 *
 * Guards: nobody who has something to read is forgotten [W1]; turns are
 * conserved in every scenario [W2]; the log is held back exactly as far as
 * somebody needs it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "wakeup.h"

#define SLOTS	200				/* over several words of the set, the last one partly */

/* Who was signalled, in order. */
typedef struct Signals
{
	int			count;
	uint32_t	slots[4 * SLOTS];
} Signals;

static void
record_signal(uint32_t slot, void *arg)
{
	Signals    *signals = arg;

	assert_true(signals->count < 4 * SLOTS);
	signals->slots[signals->count++] = slot;
}

static HeraldWakeup *
wakeup_new(uint32_t slots, uint32_t turns_max)
{
	HeraldWakeup *wakeup = memory_new(herald_wakeup_memory(slots));

	herald_wakeup_init(wakeup, slots, turns_max);
	return wakeup;
}

/* All slots joined and idle, with nothing before `start` to read. */
static HeraldWakeup *
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

static unsigned
state_of(HeraldWakeup *wakeup, uint32_t slot)
{
	return herald_word_state(atomic_load(herald_wakeup_word(wakeup, slot)));
}

static uint32_t
turn_of(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load(&herald_wakeup_turn(wakeup, slot)->serial);
}

static _Atomic uint64_t *
set_of(HeraldWakeup *wakeup)
{
	return (_Atomic uint64_t *) herald_wakeup_turn(wakeup, wakeup->slots);
}

static bool
in_set(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load(&set_of(wakeup)[slot / 64]) >> (slot % 64) & 1;
}

static void
put_into_set(HeraldWakeup *wakeup, uint32_t slot)
{
	atomic_fetch_or(&set_of(wakeup)[slot / 64], UINT64_C(1) << (slot % 64));
}

/* [W2] As many turns are out as there are numbers in slots. */
static void
assert_turns(HeraldWakeup *wakeup, uint32_t out)
{
	uint32_t	held = 0;

	for (uint32_t slot = 0; slot < wakeup->slots; slot++)
		held += turn_of(wakeup, slot) != 0;
	assert_int_equal(held, out);
	assert_int_equal(atomic_load(&wakeup->turns_out), out);
}

static Signals
pump(HeraldWakeup *wakeup)
{
	Signals		signals = {0};

	bool		handed_out = herald_wakeup_pump(wakeup, HERALD_NO_HOME, record_signal, &signals);

	assert_int_equal(handed_out, signals.count > 0);
	return signals;
}

/* Mark a slot and pump: it must be signalled. */
static void
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
static bool
read_all(HeraldWakeup *wakeup, HeraldLog *log, uint32_t slot)
{
	HeraldPosition from;
	HeraldPosition to;

	assert_true(herald_wakeup_begin(wakeup, log, slot, &from, &to));
	assert_true(herald_wakeup_finish(wakeup, log, slot, &to));
	return herald_wakeup_yield(wakeup, slot);
}

/* Guards: the memory is laid out as its size was computed (sanitizer behind it). */
static void
test_memory(void **state UNUSED)
{
	for (uint32_t slots = 1; slots <= 130; slots++)
	{
		HeraldLog  *log = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(slots, 1, 4096);

		assert_turns(wakeup, 0);
		signal_slot(wakeup, slots - 1, 4096);
		assert_turns(wakeup, 1);
		assert_true(read_all(wakeup, log, slots - 1));
		assert_turns(wakeup, 0);
		free(wakeup);
		free(log);
	}
}

/* Guards: a marked listener is signalled once, reads, and gives its turn back. */
static void
test_one_round(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition start = atomic_load(&log->dispatched);
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, start);
	HeraldPosition from;
	HeraldPosition to;

	assert_int_equal(pump(wakeup).count, 0);
	assert_true(herald_wakeup_mark(wakeup, 7, start + 64));
	assert_true(in_set(wakeup, 7));
	assert_false(herald_wakeup_mark(wakeup, 7, start + 128));
	assert_int_equal(pump(wakeup).count, 1);
	assert_false(in_set(wakeup, 7));
	assert_turns(wakeup, 1);
	assert_int_equal(pump(wakeup).count, 0);
	assert_false(herald_wakeup_mark(wakeup, 7, start + 192));
	assert_false(in_set(wakeup, 7));

	atomic_store(&log->dispatched, start + 256);
	assert_true(herald_wakeup_begin(wakeup, log, 7, &from, &to));
	assert_int_equal(from, start + 64);
	assert_int_equal(to, start + 256);
	assert_turns(wakeup, 1);
	atomic_store(&log->dispatched, start + 512);
	assert_false(herald_wakeup_mark(wakeup, 7, start + 256));
	assert_false(herald_wakeup_finish(wakeup, log, 7, &to));
	assert_int_equal(to, start + 512);
	assert_true(herald_wakeup_finish(wakeup, log, 7, &to));
	assert_true(herald_wakeup_yield(wakeup, 7));
	assert_false(herald_wakeup_yield(wakeup, 7));
	assert_turns(wakeup, 0);
	assert_false(herald_wakeup_begin(wakeup, log, 7, &from, &to));
	free(wakeup);
	free(log);
}

/* Guards: never more than k at a time, and all in the end, for several k. */
static void
test_turns_max(void **state UNUSED)
{
	static const uint32_t turns_max[] = {1, 2, 3, 64, SLOTS, 10 * SLOTS};

	for (size_t i = 0; i < sizeof(turns_max) / sizeof(turns_max[0]); i++)
	{
		HeraldLog  *log = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, turns_max[i], 4096);
		uint32_t	expected = turns_max[i] < SLOTS ? turns_max[i] : SLOTS;
		bool		heard[SLOTS] = {false};
		Signals		signals = {0};
		int			next = 0;

		for (uint32_t slot = 0; slot < SLOTS; slot++)
			assert_true(herald_wakeup_mark(wakeup, slot, 4096));
		herald_wakeup_pump(wakeup, HERALD_NO_HOME, record_signal, &signals);
		assert_int_equal(signals.count, expected);
		assert_turns(wakeup, expected);

		/* The daisy chain: each that is done hands its turn to one other. */
		while (next < signals.count)
		{
			uint32_t	slot = signals.slots[next++];

			assert_false(heard[slot]);
			heard[slot] = true;
			assert_true(read_all(wakeup, log, slot));
			herald_wakeup_pump(wakeup, HERALD_NO_HOME, record_signal, &signals);
			assert_true(signals.count - next <= (int) expected);
		}
		assert_int_equal(signals.count, SLOTS);
		assert_turns(wakeup, 0);
		free(wakeup);
		free(log);
	}
}

/* Guards: raising k while the set is not empty takes effect with the next pump. */
static void
test_turns_max_changes(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(10, 1, 4096);

	for (uint32_t slot = 0; slot < 10; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	assert_int_equal(pump(wakeup).count, 1);
	atomic_store(&wakeup->turns_max, 4);
	assert_int_equal(pump(wakeup).count, 3);
	atomic_store(&wakeup->turns_max, 2);
	assert_true(herald_wakeup_yield(wakeup, 0));
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 3);
	free(wakeup);
}

/* Guards: the cursor goes round: who was served last comes last again. */
static void
test_cursor_is_fair(void **state UNUSED)
{
	for (uint32_t slots = 2; slots <= SLOTS; slots += 33)
	{
		HeraldLog  *log = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(slots, 1, 4096);

		for (uint32_t slot = 0; slot < slots; slot++)
			assert_true(herald_wakeup_mark(wakeup, slot, 4096));

		/* Each has more to read at once, and still all others come first. */
		for (uint32_t round = 0; round < 3 * slots; round++)
		{
			Signals		signals = pump(wakeup);

			assert_int_equal(signals.count, 1);
			assert_int_equal(signals.slots[0], round % slots);
			assert_true(read_all(wakeup, log, signals.slots[0]));
			assert_true(herald_wakeup_mark(wakeup, signals.slots[0], atomic_load(&log->dispatched)));
		}
		free(wakeup);
		free(log);
	}
}

/* Guards: the only one in the set is found wherever the cursor stands. */
static void
test_cursor_finds_any(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);

	for (uint32_t cursor = 0; cursor <= SLOTS; cursor++)
		for (uint32_t slot = 0; slot < SLOTS; slot += 13)
		{
			atomic_store(herald_wakeup_word(wakeup, slot), 4096 | HERALD_LISTENER_IDLE);
			atomic_store(&wakeup->cursor, cursor);
			signal_slot(wakeup, slot, 4096);
			assert_true(herald_wakeup_yield(wakeup, slot));
		}
	free(wakeup);
}

/* Guards: a statement gives the turn back, or takes the slot out of the set. */
static void
test_busy(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);

	signal_slot(wakeup, 3, 4096);
	assert_true(herald_wakeup_mark(wakeup, 4, 4096));
	assert_true(herald_wakeup_busy(wakeup, 3));
	assert_turns(wakeup, 0);
	assert_int_equal(state_of(wakeup, 3), HERALD_LISTENER_BUSY_PENDING);
	assert_false(herald_wakeup_busy(wakeup, 3));

	/* Not signalled yet: it leaves the set, and is not signalled later. */
	assert_false(herald_wakeup_busy(wakeup, 4));
	assert_false(in_set(wakeup, 4));
	assert_int_equal(pump(wakeup).count, 0);

	/* When its transaction ends it reads, without a turn. */
	assert_true(herald_wakeup_rest(wakeup, 4));
	assert_false(read_all(wakeup, log, 4));
	assert_int_equal(state_of(wakeup, 4), HERALD_LISTENER_IDLE);

	/* Idle: no signal while busy. */
	assert_false(herald_wakeup_busy(wakeup, 5));
	assert_false(herald_wakeup_mark(wakeup, 5, 4096));
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(log);
}

/* Guards: leaving in every state, with and without a turn. */
static void
test_leave(void **state UNUSED)
{
	for (unsigned s = 0; s <= HERALD_LISTENER_BUSY_PENDING; s++)
		for (int turn = 0; turn < 2; turn++)
		{
			HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);

			if (turn)
				signal_slot(wakeup, 70, 4096);
			atomic_store(herald_wakeup_word(wakeup, 70), 4096 | s);
			put_into_set(wakeup, 70);
			herald_wakeup_leave(wakeup, 70);
			assert_turns(wakeup, 0);
			assert_false(in_set(wakeup, 70));
			assert_int_equal(atomic_load(herald_wakeup_word(wakeup, 70)), 0);

			/* The chain goes on, and the slot can be had again. */
			signal_slot(wakeup, 71, 4096);
			herald_wakeup_join(wakeup, 70, 8192);
			assert_int_equal(state_of(wakeup, 70), HERALD_LISTENER_BUSY);
			assert_turns(wakeup, 1);
			free(wakeup);
		}
}

/* Guards: a bit whose owner is not PENDING costs nobody a turn, nor a signal. */
static void
test_stale_bit(void **state UNUSED)
{
	for (unsigned s = 0; s <= HERALD_LISTENER_BUSY_PENDING; s++)
	{
		HeraldWakeup *wakeup;
		Signals		signals;

		if (s == HERALD_LISTENER_PENDING)
			continue;
		wakeup = wakeup_new_idle(SLOTS, 1, 4096);
		atomic_store(herald_wakeup_word(wakeup, 10), 4096 | s);
		put_into_set(wakeup, 10);
		assert_true(herald_wakeup_mark(wakeup, 11, 4096));
		signals = pump(wakeup);
		assert_int_equal(signals.count, 1);
		assert_int_equal(signals.slots[0], 11);
		assert_int_equal(state_of(wakeup, 10), s);
		assert_false(in_set(wakeup, 10));
		assert_turns(wakeup, 1);
		free(wakeup);
	}
}

/* Guards: a stale bit of one who holds a turn: it is given back, not doubled. */
static void
test_double_hand_out(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);

	signal_slot(wakeup, 20, 4096);
	put_into_set(wakeup, 20);
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	assert_false(read_all(wakeup, log, 20));

	/* The same while it has been requeued and is PENDING again. */
	signal_slot(wakeup, 20, atomic_load(&log->dispatched));
	atomic_store(herald_wakeup_word(wakeup, 20), 4096 | HERALD_LISTENER_PENDING);
	put_into_set(wakeup, 20);
	assert_int_equal(pump(wakeup).count, 1);
	assert_turns(wakeup, 1);
	assert_true(read_all(wakeup, log, 20));
	assert_turns(wakeup, 0);
	free(wakeup);
	free(log);
}

/* Guards: a requeued listener is at the end of the queue, without its turn. */
static void
test_requeue(void **state UNUSED)
{
	for (unsigned again = 0; again < 2; again++)
	{
		HeraldLog  *log = log_new();
		HeraldPosition start = atomic_load(&log->dispatched);
		HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, start);
		HeraldPosition from;
		HeraldPosition to;
		Signals		signals;

		signal_slot(wakeup, 30, start);
		assert_true(herald_wakeup_mark(wakeup, 29, start));
		atomic_store(&log->dispatched, start + 640);
		assert_true(herald_wakeup_begin(wakeup, log, 30, &from, &to));
		if (again)
			assert_false(herald_wakeup_mark(wakeup, 30, start + 320));
		herald_wakeup_requeue(wakeup, 30, start + 64);
		assert_turns(wakeup, 0);
		assert_true(in_set(wakeup, 30));

		signals = pump(wakeup);
		assert_int_equal(signals.count, 1);
		assert_int_equal(signals.slots[0], 29);
		assert_true(read_all(wakeup, log, 29));
		signals = pump(wakeup);
		assert_int_equal(signals.slots[0], 30);
		assert_true(herald_wakeup_begin(wakeup, log, 30, &from, &to));
		assert_int_equal(from, start + 64);
		assert_int_equal(to, start + 640);
		assert_turns(wakeup, 1);
		free(wakeup);
		free(log);
	}
}

/* Guards: the watchdog takes back the turn it saw, not a later one, and once. */
static void
test_rescue(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	uint32_t	serial;

	assert_false(herald_wakeup_rescue(wakeup, 40, 0));
	signal_slot(wakeup, 40, 4096);
	serial = turn_of(wakeup, 40);
	assert_false(herald_wakeup_rescue(wakeup, 40, serial + 1));
	assert_turns(wakeup, 1);
	assert_true(herald_wakeup_rescue(wakeup, 40, serial));
	assert_turns(wakeup, 0);
	assert_false(herald_wakeup_rescue(wakeup, 40, serial));

	/* The chain goes on; the one it was taken from reads in its own time. */
	signal_slot(wakeup, 41, 4096);
	assert_false(read_all(wakeup, log, 40));
	assert_turns(wakeup, 1);
	assert_true(read_all(wakeup, log, 41));

	signal_slot(wakeup, 40, atomic_load(&log->dispatched));
	assert_int_not_equal(turn_of(wakeup, 40), serial);
	assert_false(herald_wakeup_rescue(wakeup, 40, serial));
	assert_turns(wakeup, 1);
	free(wakeup);
	free(log);
}

/* Guards: the number that means "no turn" is never given, also after a wrap. */
static void
test_serial_wraps(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition start = atomic_load(&log->dispatched);
	HeraldWakeup *wakeup = wakeup_new_idle(3, 1, start);

	atomic_store(&wakeup->next_serial, UINT32_MAX);
	for (uint32_t slot = 0; slot < 3; slot++)
	{
		signal_slot(wakeup, slot, start);
		assert_turns(wakeup, 1);
		assert_true(read_all(wakeup, log, slot));
	}
	free(wakeup);
	free(log);
}

/* Guards: a listener comes by itself, before the waker that took its bit. */
static void
test_begin_unasked(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);

	assert_true(herald_wakeup_mark(wakeup, 50, 4096));
	assert_false(read_all(wakeup, log, 50));
	assert_false(in_set(wakeup, 50));
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(log);
}

/* A signal that is acted on before pump() has returned, twice over. */
typedef struct Eager
{
	HeraldWakeup *wakeup;
	HeraldLog  *log;
	int			signals;
} Eager;

static void
read_at_once(uint32_t slot, void *arg)
{
	Eager	   *eager = arg;

	eager->signals++;
	assert_true(read_all(eager->wakeup, eager->log, slot));
	if (eager->signals < 100)
		assert_true(herald_wakeup_mark(eager->wakeup, slot, atomic_load(&eager->log->dispatched)));
}

/* Guards: pump sees what was entered while it ran, though others are through. */
static void
test_pump_sees_new_ones(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	Eager		eager = {.wakeup = wakeup,.log = log};

	assert_true(herald_wakeup_mark(wakeup, 1, 4096));
	assert_true(herald_wakeup_mark(wakeup, 199, 4096));
	herald_wakeup_pump(wakeup, HERALD_NO_HOME, read_at_once, &eager);
	assert_in_range(eager.signals, 100, 101);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(log);
}

/* Guards: which states hold the log back, and where. */
static void
test_needed(void **state UNUSED)
{
	static const bool holds[] = {
		[HERALD_LISTENER_FREE] = false,[HERALD_LISTENER_IDLE] = false,
		[HERALD_LISTENER_PENDING] = true,[HERALD_LISTENER_SIGNALLED] = true,
		[HERALD_LISTENER_PROCESSING] = true,[HERALD_LISTENER_AGAIN] = true,
		[HERALD_LISTENER_BUSY] = false,[HERALD_LISTENER_BUSY_PENDING] = true,
	};
	HeraldLog  *log = log_new();
	HeraldPosition start = atomic_load(&log->settled);
	HeraldWakeup *wakeup = wakeup_new(SLOTS, 1);

	atomic_store(&log->head, start + 4 * log->segment_size);
	atomic_store(&log->dispatched, start + 3 * log->segment_size);
	atomic_store(&log->settled, start + 2 * log->segment_size);
	assert_int_equal(herald_wakeup_needed(wakeup, log), start + 2 * log->segment_size);
	assert_int_equal(herald_wakeup_laggard(wakeup, start + 2 * log->segment_size), -1);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		herald_wakeup_join(wakeup, slot, start);

	for (unsigned s = 0; s <= HERALD_LISTENER_BUSY_PENDING; s++)
		for (uint64_t offset = 0; offset <= 3 * log->segment_size; offset += log->segment_size / 2)
		{
			HeraldPosition expected = start + 2 * log->segment_size;
			bool		laggard = holds[s] && offset <= 2 * log->segment_size;

			if (laggard)
				expected = start + offset;
			atomic_store(herald_wakeup_word(wakeup, 150), (start + offset) | s);
			assert_int_equal(herald_wakeup_needed(wakeup, log), expected);
			assert_int_equal(herald_wakeup_laggard(wakeup, expected), laggard ? 150 : -1);
		}
	free(wakeup);
	free(log);
}

/* Guards: of several, the one furthest behind counts; advancing lets go. */
static void
test_needed_and_recycle(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition start = atomic_load(&log->settled);
	HeraldWakeup *wakeup = wakeup_new_idle(4, 4, start);
	HeraldPosition from;
	HeraldPosition to;

	for (int i = 0; i < 4; i++)
		leave_in_segment(log, 0);
	assert_int_equal(dispatch_all(log), 4);
	assert_true(herald_wakeup_mark(wakeup, 1, start + 2 * log->segment_size));
	assert_true(herald_wakeup_mark(wakeup, 2, start));
	assert_int_equal(herald_wakeup_needed(wakeup, log), start);
	assert_false(herald_log_recycle(log, herald_wakeup_needed(wakeup, log)));

	assert_true(herald_wakeup_begin(wakeup, log, 2, &from, &to));
	herald_listener_advance(herald_wakeup_word(wakeup, 2), start + log->segment_size + 8);
	assert_true(herald_log_recycle(log, herald_wakeup_needed(wakeup, log)));
	assert_int_equal(atomic_load(&log->tail), start + log->segment_size);
	assert_true(herald_wakeup_finish(wakeup, log, 2, &to));
	assert_int_equal(herald_wakeup_needed(wakeup, log), start + 2 * log->segment_size);
	assert_int_equal(herald_wakeup_laggard(wakeup, herald_wakeup_needed(wakeup, log)), 1);

	herald_wakeup_leave(wakeup, 1);
	assert_int_equal(herald_wakeup_needed(wakeup, log), start + 4 * log->segment_size);
	free(wakeup);
	free(log);
}

/* Guards: slots beyond those ever used are not looked at, but found once used. */
static void
test_slots_used(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition start = atomic_load(&log->settled);
	HeraldWakeup *wakeup = wakeup_new(SLOTS, 1);

	atomic_store(&log->settled, start + 4096);
	herald_wakeup_join(wakeup, 5, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 6);
	herald_wakeup_join(wakeup, 2, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 6);
	herald_wakeup_join(wakeup, 199, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 200);
	assert_false(herald_wakeup_mark(wakeup, 199, start + 64));
	assert_int_equal(herald_wakeup_needed(wakeup, log), start + 64);
	assert_true(herald_wakeup_rest(wakeup, 199));
	free(wakeup);
	free(log);
}

/* Guards: standing still is forgiven with the first step, and with a new owner. */
static void
test_stalled_is_reset(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(2, 1, 4096);
	_Atomic uint16_t *stalled = &herald_wakeup_turn(wakeup, 1)->stalled;
	HeraldPosition from;
	HeraldPosition to;

	signal_slot(wakeup, 1, 4096);
	atomic_store(stalled, 1);
	assert_true(herald_wakeup_begin(wakeup, log, 1, &from, &to));
	assert_int_equal(atomic_load(stalled), 0);
	atomic_store(stalled, 1);
	herald_wakeup_leave(wakeup, 1);
	herald_wakeup_join(wakeup, 1, 4096);
	assert_int_equal(atomic_load(stalled), 0);
	free(wakeup);
	free(log);
}

/* Guards: who is at home on the waker's CPU comes first, and nobody starves. */
static void
test_home(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	int			elsewhere = 0;
	int			before_first_elsewhere = -1;

	/* Even slots live on CPU 0, odd ones on CPU 1; CPU 0 does all the waking. */
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		herald_wakeup_set_home(wakeup, slot, slot % 2);
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	}
	for (int woken = 0; woken < SLOTS; woken++)
	{
		Signals		signals = {0};

		assert_true(herald_wakeup_pump(wakeup, 0, record_signal, &signals));
		assert_int_equal(signals.count, 1);
		if (signals.slots[0] % 2 == 1 && elsewhere++ == 0)
			before_first_elsewhere = woken;
		assert_true(read_all(wakeup, log, signals.slots[0]));

		/* Those at home always want more: the others still get their turn. */
		if (signals.slots[0] % 2 == 0)
			assert_true(herald_wakeup_mark(wakeup, signals.slots[0], UINT64_C(1) << 40));
	}
	assert_true(before_first_elsewhere >= 3);
	assert_in_range(elsewhere, SLOTS / 16, SLOTS / 2);
	free(wakeup);
	free(log);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_one_round),
		cmocka_unit_test(test_turns_max),
		cmocka_unit_test(test_turns_max_changes),
		cmocka_unit_test(test_cursor_is_fair),
		cmocka_unit_test(test_cursor_finds_any),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_stale_bit),
		cmocka_unit_test(test_double_hand_out),
		cmocka_unit_test(test_requeue),
		cmocka_unit_test(test_rescue),
		cmocka_unit_test(test_serial_wraps),
		cmocka_unit_test(test_begin_unasked),
		cmocka_unit_test(test_pump_sees_new_ones),
		cmocka_unit_test(test_needed),
		cmocka_unit_test(test_needed_and_recycle),
		cmocka_unit_test(test_slots_used),
		cmocka_unit_test(test_stalled_is_reset),
		cmocka_unit_test(test_home),
	};

	return cmocka_run_group_tests_name("wakeup", tests, NULL, NULL);
}
