/*-------------------------------------------------------------------------
 *
 * test_wakeup_order.c
 *	  Unit tests of wakeup.c: which listeners are woken when, and how many at a time.
 *
 * Guards: never more at a time than the limits allow; each listener in the set is woken in
 * the end, however often the others are marked.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wakeup_support.h"

/* Guards: never more than k listeners are woken at a time, and all in the end, for several k. */
static void
test_turns_max(void **state UNUSED)
{
	static const uint32_t turns_max[] = {1, 2, 3, 64, SLOTS, 10 * SLOTS};

	for (size_t i = 0; i < sizeof(turns_max) / sizeof(turns_max[0]); i++)
	{
		HeraldQueue  *queue = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, turns_max[i], 4096);
		uint32_t	expected = turns_max[i] < SLOTS ? turns_max[i] : SLOTS;
		bool		heard[SLOTS] = {false};
		Signals		signals = {0};
		int			next = 0;

		for (uint32_t slot = 0; slot < SLOTS; slot++)
			assert_true(herald_wakeup_mark(wakeup, slot, 4096));
		herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals);
		assert_int_equal(signals.count, expected);
		assert_turns(wakeup, expected);

		/* The daisy chain: each listener that is done hands its turn to one other. */
		while (next < signals.count)
		{
			uint32_t	slot = signals.slots[next++];

			assert_false(heard[slot]);
			heard[slot] = true;
			assert_true(read_all(wakeup, queue, slot));
			herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals);
			assert_true(signals.count - next <= (int) expected);
		}
		assert_int_equal(signals.count, SLOTS);
		assert_turns(wakeup, 0);
		free(wakeup);
		free(queue);
	}
}

/* Guards: handing out one turn is enough: its holder hands out all that are left. */
static void
test_turns_at_most(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 3, 4096);
	Signals		signals = {0};

	assert_false(herald_wakeup_pump(wakeup, 1, record_signal, &signals));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	assert_true(herald_wakeup_pump(wakeup, 1, record_signal, &signals));
	assert_int_equal(signals.count, 1);
	assert_turns(wakeup, 1);
	assert_true(herald_wakeup_pump(wakeup, 1, record_signal, &signals));
	assert_turns(wakeup, 2);

	assert_true(read_all(wakeup, queue, signals.slots[0]));
	assert_true(herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals));
	assert_int_equal(signals.count, 4);
	assert_turns(wakeup, 3);
	assert_false(herald_wakeup_pump(wakeup, 1, record_signal, &signals));
	free(wakeup);
	free(queue);
}

/* Guards: at rest a listener hands out two turns, up to turns_at_rest; other processes keep to k. */
static void
test_turns_at_rest(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);
	Signals		signals = {0};

	assert_false(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));

	/* As many as ever, until it is set. */
	assert_true(herald_wakeup_pump(wakeup, 1, record_signal, &signals));
	assert_true(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));
	assert_turns(wakeup, 2);
	assert_false(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));

	atomic_store(&wakeup->turns_at_rest, 5);
	assert_true(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));
	assert_turns(wakeup, 4);
	assert_true(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));
	assert_turns(wakeup, 5);
	assert_false(herald_wakeup_pump_at_rest(wakeup, record_signal, &signals));

	/* With the next batch it is k again: what is out above it runs out. */
	for (int i = 0; i < 3; i++)
	{
		assert_true(read_all(wakeup, queue, signals.slots[i]));
		assert_false(herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals));
	}
	assert_turns(wakeup, 2);
	assert_true(read_all(wakeup, queue, signals.slots[3]));
	assert_true(herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals));
	assert_turns(wakeup, 2);
	free(wakeup);
	free(queue);
}

/* Guards: listeners that wait are counted, and no others. */
static void
test_waiting(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);
	Signals		signals = {0};

	assert_int_equal(herald_wakeup_waiting(wakeup), 0);
	for (uint32_t slot = 1; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	assert_int_equal(herald_wakeup_waiting(wakeup), SLOTS - 1);

	herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_signal, &signals);
	assert_int_equal(herald_wakeup_waiting(wakeup), SLOTS - 3);
	assert_true(read_all(wakeup, queue, signals.slots[0]));
	assert_int_equal(herald_wakeup_waiting(wakeup), SLOTS - 3);
	herald_wakeup_leave(wakeup, SLOTS - 1);
	assert_int_equal(herald_wakeup_waiting(wakeup), SLOTS - 4);
	free(wakeup);
	free(queue);
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

/* Guards: the cursor goes round: the listener that was served last comes last again. */
static void
test_cursor_is_fair(void **state UNUSED)
{
	for (uint32_t slots = 2; slots <= SLOTS; slots += 33)
	{
		HeraldQueue  *queue = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(slots, 1, 4096);

		for (uint32_t slot = 0; slot < slots; slot++)
			assert_true(herald_wakeup_mark(wakeup, slot, 4096));

		/* Each has more to read at once, but all others come first. */
		for (uint32_t round = 0; round < 3 * slots; round++)
		{
			Signals		signals = pump(wakeup);

			assert_int_equal(signals.count, 1);
			assert_int_equal(signals.slots[0], round % slots);
			assert_true(read_all(wakeup, queue, signals.slots[0]));
			assert_true(herald_wakeup_mark(wakeup, signals.slots[0], atomic_load(&queue->dispatched)));
		}
		free(wakeup);
		free(queue);
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

/* A signal that is acted on before pump() has returned; the listener is marked again. */
typedef struct Eager
{
	HeraldWakeup *wakeup;
	HeraldQueue  *queue;
	int			signals;
} Eager;

static bool
read_at_once(uint32_t slot, void *arg)
{
	Eager	   *eager = arg;

	eager->signals++;
	assert_true(read_all(eager->wakeup, eager->queue, slot));
	if (eager->signals < 100)
		assert_true(herald_wakeup_mark(eager->wakeup, slot, atomic_load(&eager->queue->dispatched)));
	return true;
}

/* Guards: pump sees listeners that enter the set while it runs. */
static void
test_pump_sees_new_ones(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	Eager		eager = {.wakeup = wakeup,.queue = queue};

	assert_true(herald_wakeup_mark(wakeup, 1, 4096));
	assert_true(herald_wakeup_mark(wakeup, 199, 4096));
	herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, read_at_once, &eager);
	assert_true(eager.signals >= 100 && eager.signals <= 101);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turns_max),
		cmocka_unit_test(test_turns_at_most),
		cmocka_unit_test(test_turns_at_rest),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_turns_max_changes),
		cmocka_unit_test(test_cursor_is_fair),
		cmocka_unit_test(test_cursor_finds_any),
		cmocka_unit_test(test_pump_sees_new_ones),
	};

	return cmocka_run_group_tests_name("wakeup order", tests, NULL, NULL);
}
