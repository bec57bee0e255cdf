/*-------------------------------------------------------------------------
 *
 * wakeup_operations.c
 *	  The cost of marking and waking listeners, and its growth with their number.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "micro.h"

#include <stdlib.h>

/* Listeners of all wakeups together: enough for long loops, and they still fit in a cache. */
#define LISTENERS_ALL	4096

#define SLOTS_DRAWN		4096	/* a power of two */
#define START			RING_SIZE
#define MESSAGE			(START + 64)

/* A queue of the signals sent; listeners take them from its head. */
typedef struct Signals
{
	uint32_t	slots[TURNS];
	uint32_t	count;
} Signals;


/* All listeners have joined and are idle, with nothing to read. */
HeraldWakeup *
wakeup_create(uint32_t slots)
{
	HeraldWakeup *wakeup = allocate(herald_wakeup_memory(slots));

	herald_wakeup_init(wakeup, slots, TURNS);
	for (uint32_t slot = 0; slot < slots; slot++)
	{
		herald_wakeup_join(wakeup, slot, START);
		(void) herald_wakeup_rest(wakeup, slot);
	}
	return wakeup;
}

static void
create_with_log(Bench *bench, uint32_t wakeups)
{
	uint64_t	random = 1;

	/* Only the queue's positions matter. */
	bench->queue = allocate(herald_queue_bytes(HERALD_RING_MIN));
	herald_queue_init(bench->queue, HERALD_RING_MIN);
	atomic_store(&bench->queue->dispatched, MESSAGE + 64);
	atomic_store(&bench->queue->settled, MESSAGE + 64);

	bench->wakeups_count = wakeups;
	bench->wakeups = allocate(wakeups * sizeof(HeraldWakeup *));
	for (uint32_t i = 0; i < wakeups; i++)
		bench->wakeups[i] = wakeup_create(bench->size);

	bench->all_slots = allocate(bench->size * sizeof(uint32_t));
	for (uint32_t i = 0; i < bench->size; i++)
		bench->all_slots[i] = i;

	bench->slots = allocate(SLOTS_DRAWN * sizeof(uint32_t));
	for (uint32_t i = 0; i < SLOTS_DRAWN; i++)
	{
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		bench->slots[i] = (uint32_t) ((random >> 33) % bench->size);
	}
}

static void
create_one(Bench *bench)
{
	create_with_log(bench, 1);
}

static void
create_many(Bench *bench)
{
	create_with_log(bench, bench->size >= LISTENERS_ALL ? 1 : LISTENERS_ALL / bench->size);
}

/* Each listener of each wakeup once. */
static uint64_t
all_listeners(const Bench *bench, uint64_t wanted)
{
	(void) wanted;
	return (uint64_t) bench->wakeups_count * bench->size;
}

/* ---- marking ---- */

static void
prepare_state(Bench *bench, HeraldListenerState state)
{
	for (uint32_t i = 0; i < bench->wakeups_count; i++)
	{
		HeraldWakeup *wakeup = bench->wakeups[i];
		char	   *turns = (char *) herald_wakeup_turn(wakeup, 0);
		_Atomic uint64_t *set = (_Atomic uint64_t *) (turns + bench->size * sizeof(HeraldTurn));

		for (uint32_t slot = 0; slot < bench->size; slot++)
		{
			atomic_store_explicit(herald_wakeup_word(wakeup, slot), herald_word_make(START, state),
								  memory_order_relaxed);
			if (slot % 64 == 0)
				atomic_store_explicit(&set[slot / 64], 0, memory_order_relaxed);
		}
	}
}

static void
prepare_idle(Bench *bench, uint64_t n)
{
	(void) n;
	prepare_state(bench, HERALD_LISTENER_IDLE);
}

static void
prepare_pending(Bench *bench, uint64_t n)
{
	(void) n;
	prepare_state(bench, HERALD_LISTENER_PENDING);
}

static void
prepare_reading(Bench *bench, uint64_t n)
{
	(void) n;
	prepare_state(bench, HERALD_LISTENER_PROCESSING);
}

static void
prepare_busy(Bench *bench, uint64_t n)
{
	(void) n;
	prepare_state(bench, HERALD_LISTENER_BUSY);
}

static void
run_mark(Bench *bench, uint64_t n)
{
	(void) n;
	for (uint32_t i = 0; i < bench->wakeups_count; i++)
		consume(herald_wakeup_mark_all(bench->wakeups[i], bench->all_slots, bench->size, MESSAGE));
}

/* ---- waking ---- */

static bool
note_signal(uint32_t slot, void *arg)
{
	Signals    *signals = arg;

	if (signals->count == TURNS)
		abort();
	signals->slots[signals->count++] = slot;
	return true;
}

static void
run_pump_empty(Bench *bench, uint64_t n)
{
	Signals		signals = {0};

	for (uint64_t i = 0; i < n; i++)
		consume(herald_wakeup_pump(bench->wakeups[0], HERALD_ALL_TURNS, note_signal, &signals));
}

/* A listener's pass, from its signal to passing its turn on. */
static void
read_and_hand_over(Bench *bench, HeraldWakeup *wakeup, uint32_t slot, Signals *signals)
{
	HeraldPosition from;
	HeraldPosition to;

	if (!herald_wakeup_begin(wakeup, bench->queue, slot, &from, &to))
		abort();
	to = START;					/* so that it can be marked again */
	if (!herald_wakeup_finish(wakeup, bench->queue, slot, &to))
		abort();
	(void) herald_wakeup_yield(wakeup, slot);
	(void) herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, note_signal, signals);
}

/* Each operation notifies one listener, drawn at random. */
static void
run_wake_one(Bench *bench, uint64_t n)
{
	HeraldWakeup *wakeup = bench->wakeups[0];

	for (uint64_t i = 0; i < n; i++)
	{
		uint32_t	slot = bench->slots[i % SLOTS_DRAWN];
		Signals		signals = {0};

		(void) herald_wakeup_mark(wakeup, slot, MESSAGE);
		(void) herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, note_signal, &signals);
		read_and_hand_over(bench, wakeup, slot, &signals);
	}
}

/* All are marked, and pass their turns on until all have read. */
static void
run_wake_all(Bench *bench, uint64_t n)
{
	(void) n;
	for (uint32_t i = 0; i < bench->wakeups_count; i++)
	{
		HeraldWakeup *wakeup = bench->wakeups[i];
		Signals		signals = {0};

		(void) herald_wakeup_mark_all(wakeup, bench->all_slots, bench->size, MESSAGE);
		(void) herald_wakeup_pump(wakeup, HERALD_ALL_TURNS, note_signal, &signals);
		for (uint32_t read = 0; read < bench->size; read++)
		{
			uint32_t	slot = signals.slots[0];

			signals.slots[0] = signals.slots[1];
			signals.count--;
			read_and_hand_over(bench, wakeup, slot, &signals);
		}
	}
}

static void
run_busy_rest(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
	{
		(void) herald_wakeup_busy(bench->wakeups[0], 0);
		(void) herald_wakeup_rest(bench->wakeups[0], 0);
	}
}

static void
run_join_leave(Bench *bench, uint64_t n)
{
	uint32_t	slot = bench->size - 1;

	for (uint64_t i = 0; i < n; i++)
	{
		herald_wakeup_leave(bench->wakeups[0], slot);
		herald_wakeup_join(bench->wakeups[0], slot, START);
	}
}

/* ---- walks over all listeners ---- */

static void
run_needed(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		consume(herald_wakeup_needed(bench->wakeups[0], bench->queue));
}

static void
run_waiting(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		consume(herald_wakeup_waiting(bench->wakeups[0]));
}

const Operation wakeup_operations[] = {
	{"mark_idle", SIZE_LISTENERS, create_many, prepare_idle, run_mark, all_listeners},
	{"mark_pending", SIZE_LISTENERS, create_many, prepare_pending, run_mark, all_listeners},
	{"mark_reading", SIZE_LISTENERS, create_many, prepare_reading, run_mark, all_listeners},
	{"mark_busy", SIZE_LISTENERS, create_many, prepare_busy, run_mark, all_listeners},
	{"pump_empty", SIZE_LISTENERS, create_one, NULL, run_pump_empty, NULL},
	{"wake_one", SIZE_LISTENERS, create_one, NULL, run_wake_one, NULL},
	{"wake_all", SIZE_LISTENERS, create_many, NULL, run_wake_all, all_listeners},
	{"busy_rest", SIZE_LISTENERS, create_one, NULL, run_busy_rest, NULL},
	{"join_leave", SIZE_LISTENERS, create_one, NULL, run_join_leave, NULL},
	{"waiting", SIZE_LISTENERS, create_one, NULL, run_waiting, NULL},
	{"needed", SIZE_LISTENERS, create_one, prepare_pending, run_needed, NULL},
	{0}
};
