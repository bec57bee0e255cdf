/*-------------------------------------------------------------------------
 *
 * test_wakeup.c
 *	  Unit tests of wakeup.c: turns, and the position that is needed.
 *
 * Guards: no listener that has something to read is forgotten [W1]; turns are
 * conserved in every scenario [W2]; the queue is held back exactly as far as
 * a listener needs it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wakeup_support.h"

/* Guards: the layout fits into the computed size (sanitizer behind it). */
static void
test_memory(void **state UNUSED)
{
	for (uint32_t slots = 1; slots <= 130; slots++)
	{
		HeraldQueue  *queue = log_new();
		HeraldWakeup *wakeup = wakeup_new_idle(slots, 1, 4096);

		assert_turns(wakeup, 0);
		signal_slot(wakeup, slots - 1, 4096);
		assert_turns(wakeup, 1);
		assert_true(read_all(wakeup, queue, slots - 1));
		assert_turns(wakeup, 0);
		free(wakeup);
		free(queue);
	}
}

/* Guards: a marked listener is signalled once, reads, and gives its turn back. */
static void
test_one_round(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->dispatched);
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

	atomic_store(&queue->dispatched, start + 256);
	assert_true(herald_wakeup_begin(wakeup, queue, 7, &from, &to));
	assert_int_equal(from, start + 64);
	assert_int_equal(to, start + 256);
	assert_turns(wakeup, 1);
	atomic_store(&queue->dispatched, start + 512);
	assert_false(herald_wakeup_mark(wakeup, 7, start + 256));
	assert_false(herald_wakeup_finish(wakeup, queue, 7, &to));
	assert_int_equal(to, start + 512);
	assert_true(herald_wakeup_finish(wakeup, queue, 7, &to));
	assert_true(herald_wakeup_yield(wakeup, 7));
	assert_false(herald_wakeup_yield(wakeup, 7));
	assert_turns(wakeup, 0);
	assert_false(herald_wakeup_begin(wakeup, queue, 7, &from, &to));
	free(wakeup);
	free(queue);
}

/* Guards: a statement gives the turn back, or takes the slot out of the set. */
static void
test_busy(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
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
	assert_false(read_all(wakeup, queue, 4));
	assert_int_equal(state_of(wakeup, 4), HERALD_LISTENER_IDLE);

	/* It was idle: no signal while it is busy. */
	assert_false(herald_wakeup_busy(wakeup, 5));
	assert_false(herald_wakeup_mark(wakeup, 5, 4096));
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(queue);
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

			/* Turns are still handed out, and the slot can be used again. */
			signal_slot(wakeup, 71, 4096);
			herald_wakeup_join(wakeup, 70, 8192);
			assert_int_equal(state_of(wakeup, 70), HERALD_LISTENER_BUSY);
			assert_turns(wakeup, 1);
			free(wakeup);
		}
}

/* Guards: a bit whose owner is not PENDING costs no turn and no signal. */
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

/* Guards: a stale bit of a listener that holds a turn: the turn is given back, not doubled. */
static void
test_double_hand_out(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);

	signal_slot(wakeup, 20, 4096);
	put_into_set(wakeup, 20);
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	assert_false(read_all(wakeup, queue, 20));

	/* The same when it was requeued and is PENDING again. */
	signal_slot(wakeup, 20, atomic_load(&queue->dispatched));
	atomic_store(herald_wakeup_word(wakeup, 20), 4096 | HERALD_LISTENER_PENDING);
	put_into_set(wakeup, 20);
	assert_int_equal(pump(wakeup).count, 1);
	assert_turns(wakeup, 1);
	assert_true(read_all(wakeup, queue, 20));
	assert_turns(wakeup, 0);
	free(wakeup);
	free(queue);
}

/* Guards: a requeued listener comes last in the set, without its turn. */
static void
test_requeue(void **state UNUSED)
{
	for (unsigned again = 0; again < 2; again++)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition start = atomic_load(&queue->dispatched);
		HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, start);
		HeraldPosition from;
		HeraldPosition to;
		Signals		signals;

		signal_slot(wakeup, 30, start);
		assert_true(herald_wakeup_mark(wakeup, 29, start));
		atomic_store(&queue->dispatched, start + 640);
		assert_true(herald_wakeup_begin(wakeup, queue, 30, &from, &to));
		if (again)
			assert_false(herald_wakeup_mark(wakeup, 30, start + 320));
		herald_wakeup_requeue(wakeup, 30, start + 64);
		assert_turns(wakeup, 0);
		assert_true(in_set(wakeup, 30));

		signals = pump(wakeup);
		assert_int_equal(signals.count, 1);
		assert_int_equal(signals.slots[0], 29);
		assert_true(read_all(wakeup, queue, 29));
		signals = pump(wakeup);
		assert_int_equal(signals.slots[0], 30);
		assert_true(herald_wakeup_begin(wakeup, queue, 30, &from, &to));
		assert_int_equal(from, start + 64);
		assert_int_equal(to, start + 640);
		assert_turns(wakeup, 1);
		free(wakeup);
		free(queue);
	}
}

/* Guards: the watchdog takes back the turn it saw, not a later one, and only once. */
static void
test_rescue(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
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

	/* Turns are still handed out; the listener that has lost its turn reads in its own time. */
	signal_slot(wakeup, 41, 4096);
	assert_false(read_all(wakeup, queue, 40));
	assert_turns(wakeup, 1);
	assert_true(read_all(wakeup, queue, 41));

	atomic_store(&herald_wakeup_turn(wakeup, 40)->distrust, 0);
	signal_slot(wakeup, 40, atomic_load(&queue->dispatched));
	assert_int_not_equal(turn_of(wakeup, 40), serial);
	assert_false(herald_wakeup_rescue(wakeup, 40, serial));
	assert_turns(wakeup, 1);
	free(wakeup);
	free(queue);
}

/* Guards: where turns are not used, listeners are signalled without one, a limited number at once. */
static void
test_no_turns(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	Signals		signals = {0};

	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	assert_true(herald_wakeup_pump(wakeup, HERALD_NO_TURNS, record_signal, &signals));
	assert_int_equal(signals.count, SLOTS < HERALD_BESIDES_MAX ? SLOTS : HERALD_BESIDES_MAX);
	for (int i = 0; i < signals.count; i++)
		assert_int_equal(turn_of(wakeup, signals.slots[i]), 0);
	assert_turns(wakeup, 0);
	free(wakeup);
}

/* Guards: a listener that did not use its turn is signalled beside the others, until it has been quick again. */
static void
test_distrust(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);
	HeraldPosition at = 4096;

	signal_slot(wakeup, 0, at);
	assert_true(herald_wakeup_rescue(wakeup, 0, turn_of(wakeup, 0)));
	assert_false(read_all(wakeup, queue, 0));
	for (int wakeups = 1; wakeups <= HERALD_DISTRUST; wakeups++)
	{
		Signals		signals;

		at = atomic_load(&queue->dispatched);
		atomic_store(&wakeup->cursor, 0);
		assert_true(herald_wakeup_mark(wakeup, 0, at));
		assert_true(herald_wakeup_mark(wakeup, 1, at));
		signals = pump(wakeup);
		assert_int_equal(signals.slots[0], 0);
		if (wakeups < HERALD_DISTRUST)
		{
			assert_int_equal(signals.count, 2);
			assert_int_equal(turn_of(wakeup, 0), 0);
			assert_turns(wakeup, 1);
			assert_false(read_all(wakeup, queue, 0));
			assert_true(read_all(wakeup, queue, 1));
		}
		else
		{
			assert_int_equal(signals.count, 1);
			assert_turns(wakeup, 1);
		}
	}

	/* Leaving and joining again does not restore trust; a new owner is trusted. */
	assert_true(herald_wakeup_rescue(wakeup, 0, turn_of(wakeup, 0)));
	herald_wakeup_leave(wakeup, 0);
	herald_wakeup_join(wakeup, 0, at);
	assert_int_equal(atomic_load(&herald_wakeup_turn(wakeup, 0)->distrust), HERALD_DISTRUST);
	herald_wakeup_trust(wakeup, 0);
	assert_int_equal(atomic_load(&herald_wakeup_turn(wakeup, 0)->distrust), 0);
	free(wakeup);
	free(queue);
}

static bool
record_even(uint32_t slot, void *arg)
{
	return record_signal(slot, arg) && slot % 2 == 0;
}

/*
 * Guards: listeners that cannot act now are signalled without a turn; not for ever in one
 * call.
 */
static void
test_cannot_act(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);
	Signals		signals = {0};

	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	assert_true(herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_even, &signals));
	assert_turns(wakeup, 2);
	assert_true(signals.count >= 3 && signals.count <= 4);
	for (int i = 0; i < signals.count; i++)
		assert_int_equal(turn_of(wakeup, signals.slots[i]) != 0, signals.slots[i] % 2 == 0);
	free(wakeup);
}

static bool
record_nobody(uint32_t slot, void *arg)
{
	return !record_signal(slot, arg);
}

/* Guards: if many cannot act, some are left to the watchdog, which notices, and signals all. */
static void
test_none_can_act(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);
	Signals		signals = {0};
	int			calls = 0;

	assert_false(herald_wakeup_can_pump(wakeup));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		assert_true(herald_wakeup_mark(wakeup, slot, 4096));
	while (herald_wakeup_can_pump(wakeup))
	{
		assert_true(herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, record_nobody, &signals));
		calls++;
	}
	assert_int_equal(signals.count, SLOTS);
	assert_int_equal(calls, (SLOTS + HERALD_BESIDES_MAX - 1) / HERALD_BESIDES_MAX);
	assert_turns(wakeup, 0);
	free(wakeup);
}

/* Guards: the number that means "no turn" is never given, also after a wrap. */
static void
test_serial_wraps(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->dispatched);
	HeraldWakeup *wakeup = wakeup_new_idle(3, 1, start);

	atomic_store(&wakeup->next_serial, UINT32_MAX);
	for (uint32_t slot = 0; slot < 3; slot++)
	{
		signal_slot(wakeup, slot, start);
		assert_turns(wakeup, 1);
		assert_true(read_all(wakeup, queue, slot));
	}
	free(wakeup);
	free(queue);
}

/* Guards: a listener begins to read by itself, before a waker takes its bit. */
static void
test_begin_unasked(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, 4096);

	assert_true(herald_wakeup_mark(wakeup, 50, 4096));
	assert_false(read_all(wakeup, queue, 50));
	assert_false(in_set(wakeup, 50));
	assert_int_equal(pump(wakeup).count, 0);
	assert_turns(wakeup, 0);
	free(wakeup);
	free(queue);
}

/* Guards: which states hold the queue back, and where. */
static void
test_needed(void **state UNUSED)
{
	static const bool holds[] = {
		[HERALD_LISTENER_FREE] = false,[HERALD_LISTENER_IDLE] = false,
		[HERALD_LISTENER_PENDING] = true,[HERALD_LISTENER_SIGNALLED] = true,
		[HERALD_LISTENER_PROCESSING] = true,[HERALD_LISTENER_AGAIN] = true,
		[HERALD_LISTENER_BUSY] = false,[HERALD_LISTENER_BUSY_PENDING] = true,
	};
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->settled);
	HeraldWakeup *wakeup = wakeup_new(SLOTS, 1);

	atomic_store(&queue->head, start + 4 * queue->segment_size);
	atomic_store(&queue->dispatched, start + 3 * queue->segment_size);
	atomic_store(&queue->settled, start + 2 * queue->segment_size);
	assert_int_equal(herald_wakeup_needed(wakeup, queue), start + 2 * queue->segment_size);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		herald_wakeup_join(wakeup, slot, start);

	for (unsigned s = 0; s <= HERALD_LISTENER_BUSY_PENDING; s++)
		for (uint64_t offset = 0; offset <= 3 * queue->segment_size; offset += queue->segment_size / 2)
		{
			HeraldPosition expected = start + 2 * queue->segment_size;
			if (holds[s] && offset <= 2 * queue->segment_size)
				expected = start + offset;
			atomic_store(herald_wakeup_word(wakeup, 150), (start + offset) | s);
			assert_int_equal(herald_wakeup_needed(wakeup, queue), expected);
		}
	free(wakeup);
	free(queue);
}

/*
 * Guards: a listener below `lost` holds nothing back; one at or above it does,
 * in every state in which it has something to read.
 */
static void
test_needed_lost(void **state UNUSED)
{
	static const unsigned states[] = {
		HERALD_LISTENER_PENDING, HERALD_LISTENER_SIGNALLED, HERALD_LISTENER_PROCESSING,
		HERALD_LISTENER_AGAIN, HERALD_LISTENER_BUSY_PENDING
	};
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->settled);
	HeraldPosition end = start + 4 * queue->segment_size;
	HeraldPosition lost = start + queue->segment_size;
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 1, start);

	atomic_store(&queue->head, end);
	atomic_store(&queue->dispatched, end);
	atomic_store(&queue->settled, end);
	atomic_store(&queue->lost, lost);
	for (size_t s = 0; s < sizeof(states) / sizeof(states[0]); s++)
	{
		_Atomic uint64_t *overrun = herald_wakeup_word(wakeup, 150);
		_Atomic uint64_t *other = herald_wakeup_word(wakeup, 7);

		atomic_store(overrun, start | states[s]);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), end);
		atomic_store(overrun, (lost - 8) | states[s]);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), end);

		/* It does not hide a listener that is further on. */
		atomic_store(other, (lost + 800) | states[s]);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), lost + 800);
		atomic_store(overrun, lost | states[s]);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), lost);
		atomic_store(&queue->lost, lost + 8);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), lost + 800);
		atomic_store(overrun, (lost + 8) | states[s]);
		assert_int_equal(herald_wakeup_needed(wakeup, queue), lost + 8);

		atomic_store(&queue->lost, lost);
		atomic_store(overrun, end | HERALD_LISTENER_IDLE);
		atomic_store(other, end | HERALD_LISTENER_IDLE);
	}

	/* After an overrun it skips to the end, is idle, and is marked there: it counts again. */
	atomic_store(herald_wakeup_word(wakeup, 150), start | HERALD_LISTENER_PROCESSING);
	assert_true(herald_wakeup_finish(wakeup, queue, 150, &(HeraldPosition) {end}));
	atomic_store(&queue->settled, end + 800);
	atomic_store(&queue->dispatched, end + 800);
	assert_int_equal(herald_wakeup_needed(wakeup, queue), end + 800);
	assert_true(herald_wakeup_mark(wakeup, 150, end + 80));
	assert_int_equal(herald_wakeup_needed(wakeup, queue), end + 80);
	free(wakeup);
	free(queue);
}

/* Guards: of several listeners, the one furthest behind counts; advancing releases segments. */
static void
test_needed_and_recycle(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->settled);
	HeraldWakeup *wakeup = wakeup_new_idle(4, 4, start);
	HeraldPosition from;
	HeraldPosition to;

	for (int i = 0; i < 4; i++)
		leave_in_segment(queue, 0);
	assert_int_equal(dispatch_all(queue), 4);
	assert_true(herald_wakeup_mark(wakeup, 1, start + 2 * queue->segment_size));
	assert_true(herald_wakeup_mark(wakeup, 2, start));
	assert_int_equal(herald_wakeup_needed(wakeup, queue), start);
	assert_false(herald_queue_recycle(queue, herald_wakeup_needed(wakeup, queue)));

	assert_true(herald_wakeup_begin(wakeup, queue, 2, &from, &to));
	herald_listener_advance(herald_wakeup_word(wakeup, 2), start + queue->segment_size + 8);
	assert_true(herald_queue_recycle(queue, herald_wakeup_needed(wakeup, queue)));
	assert_int_equal(atomic_load(&queue->tail), start + queue->segment_size);
	assert_true(herald_wakeup_finish(wakeup, queue, 2, &to));
	assert_int_equal(herald_wakeup_needed(wakeup, queue), start + 2 * queue->segment_size);

	herald_wakeup_leave(wakeup, 1);
	assert_int_equal(herald_wakeup_needed(wakeup, queue), start + 4 * queue->segment_size);
	free(wakeup);
	free(queue);
}

/* Guards: slots beyond those ever used are not looked at, but found once used. */
static void
test_slots_used(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition start = atomic_load(&queue->settled);
	HeraldWakeup *wakeup = wakeup_new(SLOTS, 1);

	atomic_store(&queue->settled, start + 4096);
	herald_wakeup_join(wakeup, 5, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 6);
	herald_wakeup_join(wakeup, 2, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 6);
	herald_wakeup_join(wakeup, 199, start);
	assert_int_equal(atomic_load(&wakeup->slots_used), 200);
	assert_false(herald_wakeup_mark(wakeup, 199, start + 64));
	assert_int_equal(herald_wakeup_needed(wakeup, queue), start + 64);
	assert_true(herald_wakeup_rest(wakeup, 199));
	free(wakeup);
	free(queue);
}

static int
holds(const uint32_t *slots, int count, uint32_t slot)
{
	while (count > 0 && slots[count - 1] != slot)
		count--;
	return count > 0;
}

/* Guards: of many slots in any order, exactly the idle ones that are not in the set enter it. */
static void
test_mark_all(void **state UNUSED)
{
	HeraldWakeup *wakeup = wakeup_new_idle(SLOTS, 2, 4096);
	uint32_t	slots[SLOTS];

	/* 37 and 200 have no common factor: each slot comes once, jumping from word to word. */
	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i] = i * 37 % SLOTS;

	assert_int_equal(herald_wakeup_mark_all(wakeup, slots, 0, 4096), 0);
	assert_int_equal(herald_wakeup_waiting(wakeup), 0);

	(void) herald_wakeup_busy(wakeup, 63);
	herald_wakeup_leave(wakeup, 64);
	assert_int_equal(herald_wakeup_mark_all(wakeup, slots, 50, 4096),
					 50 - holds(slots, 50, 63) - holds(slots, 50, 64));
	assert_int_equal(herald_wakeup_mark_all(wakeup, slots, SLOTS, 4096),
					 SLOTS - 50 - (1 - holds(slots, 50, 63)) - (1 - holds(slots, 50, 64)));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		bool		enters = slot != 63 && slot != 64;

		assert_int_equal(in_set(wakeup, slot), enters);
		assert_int_equal(state_of(wakeup, slot) == HERALD_LISTENER_PENDING, enters);
	}
	assert_int_equal(state_of(wakeup, 63), HERALD_LISTENER_BUSY_PENDING);
	free(wakeup);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mark_all),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_one_round),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_stale_bit),
		cmocka_unit_test(test_double_hand_out),
		cmocka_unit_test(test_requeue),
		cmocka_unit_test(test_rescue),
		cmocka_unit_test(test_no_turns),
		cmocka_unit_test(test_distrust),
		cmocka_unit_test(test_cannot_act),
		cmocka_unit_test(test_none_can_act),
		cmocka_unit_test(test_serial_wraps),
		cmocka_unit_test(test_begin_unasked),
		cmocka_unit_test(test_needed),
		cmocka_unit_test(test_needed_lost),
		cmocka_unit_test(test_needed_and_recycle),
		cmocka_unit_test(test_slots_used),
	};

	return cmocka_run_group_tests_name("wakeup", tests, NULL, NULL);
}
