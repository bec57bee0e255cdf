/*-------------------------------------------------------------------------
 *
 * stress.c
 *	  Seeded stress of inval_queue.c: the threads, their rounds and signals.
 *
 * See stress.h for what they do.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stress.h"

#define SIGNAL_LATE_ONE_IN		8
#define SIGNAL_LATE_US_MAX		2000
#define BUSY_ONE_IN				4	/* of the signalled readers */

World		world;
_Atomic uint64_t counts[COUNTS];

const char *const count_names[] = {
	"inserted", "read", "passes", "signals", "late signals",
	"handed on", "resets", "resets midway", "resets of the holder", "joins",
	"left midway", "left with the turn", "taken back", "passed on", "passed on to none",
	"stuck and back", NULL
};

_Static_assert(sizeof(count_names) == (COUNTS + 1) * sizeof(*count_names), "a name for each");

static bool is_taken_for_busy(void);
static int32_t pass_on(uint32_t slot);
static void wake(Reader *reader);
static void check_at_rest(void);


void
world_init(void)
{
	world.queue = aligned_alloc(HERALD_CACHE_LINE,
								herald_inval_memory(HERALD_INVAL_SIZE_MIN, SLOTS));
	herald_inval_init(world.queue, HERALD_INVAL_SIZE_MIN, SLOTS);
	pthread_mutex_init(&world.lock, NULL);
	pthread_mutex_init(&world.slots_lock, NULL);
	for (uint32_t i = 0; i < INSERTERS; i++)
	{
		Inserter   *inserter = &world.inserters[i];

		*inserter = (Inserter) {.index = i,.random = run_random(i)};
		run_add_worker(inserter_act, inserter, inserter->random ^ UINT64_C(0x5555));
	}
	for (uint32_t i = 0; i < READERS; i++)
	{
		Reader	   *reader = &world.readers[i];

		reader->index = i;
		reader->random = run_random(1000 + i);
		sem_init(&reader->signal, 0, 0);
		run_add_thread(reader_act, reader, reader->random ^ UINT64_C(0xAAAA));
	}
}

void
world_plan_round(uint64_t *random)
{
	world.inserts = 1 + (uint32_t) (herald_random(random) % (one_in(random, 8) ? 600 : 60));
	world.pause_one_in = UINT32_C(1) << herald_random(random) % 8;
	world.passes_on = one_in(random, 2);
}

/*
 * First no thread acts by itself any more, and then no signal is out.  A thread
 * that handles a signal counts those that it sends before its own is handled.
 */
bool
world_is_quiet(void)
{
	for (int i = 0; i < READERS; i++)
	{
		if (atomic_load(&world.readers[i].parked) == 0)
			return false;
	}
	if (atomic_load(&world.signals_out) != 0)
		return false;
	check_at_rest();
	return true;
}

void
world_wake_all(void)
{
	for (int i = 0; i < READERS; i++)
		wake(&world.readers[i]);
}

/* All messages that are left can be read, and after that all readers are at rest again. */
void
world_verify(void)
{
	for (int i = 0; i < READERS; i++)
		reader_finish(&world.readers[i]);
	check_at_rest();
}

/* With nothing under way, no reader has the turn, and none should have it. */
static void
check_at_rest(void)
{
	HeraldInvalQueue *queue = world.queue;
	uint64_t	given = atomic_load(&world.turns_given);

	if (holder_of(herald_inval_turn(queue)) != HERALD_INVAL_NOBODY)
		fail("nobody is signalled, but slot %d has the turn", holder_of(herald_inval_turn(queue)));
	if (given != atomic_load(&world.turns_ended))
		fail("%llu turns were given, and %llu have ended", (unsigned long long) given,
			 (unsigned long long) atomic_load(&world.turns_ended));
	if (atomic_load(&queue->signals) != atomic_load(&counts[COUNT_SIGNALS]) +
		atomic_load(&counts[COUNT_LATE_SIGNALS]))
		fail("%llu signals are counted that were not sent, or the reverse",
			 (unsigned long long) atomic_load(&queue->signals));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		uint64_t	word = word_of(slot);

		if (herald_inval_state(word) != HERALD_INVAL_READING)
			continue;
		if (atomic_load(&queue->readers[slot].stuck) != 0)
			fail("slot %u has caught up when it was signalled, and is stuck", slot);
		if (herald_inval_position(word) + queue->size / HERALD_INVAL_FAR_BEHIND <= world.last_look)
			fail("slot %u was far behind at %llu, and nobody has the turn", slot,
				 (unsigned long long) world.last_look);
	}
}

void
send_signal(int32_t slot)
{
	while (slot != HERALD_INVAL_NOBODY)
	{
		uint32_t	owner;

		if (herald_jitter_random() % SIGNAL_LATE_ONE_IN == 0)
			usleep((useconds_t) (herald_jitter_random() % SIGNAL_LATE_US_MAX));
		owner = atomic_load(&world.owner[slot]);
		count(owner != 0 ? COUNT_SIGNALS : COUNT_LATE_SIGNALS);
		if (owner != 0)
			wake(&world.readers[owner - 1]);
		slot = is_taken_for_busy() ? pass_on((uint32_t) slot) : HERALD_INVAL_NOBODY;
	}
}

/* In some rounds only, and never while things come to rest: it must not hide what the core loses. */
static bool
is_taken_for_busy(void)
{
	return world.passes_on && current_phase() == PHASE_ACTIVE && herald_jitter_random() % BUSY_ONE_IN == 0;
}

/* As in inval/catch_up.c. */
static int32_t
pass_on(uint32_t slot)
{
	int32_t		next = HERALD_INVAL_NOBODY;
	uint64_t	turn;

	pthread_mutex_lock(&world.lock);
	turn = herald_inval_turn(world.queue);
	if (holder_of(turn) == (int32_t) slot)
	{
		uint32_t	moves = atomic_load(&world.moves[slot]);

		next = herald_inval_rescue(world.queue, turn);
		if (herald_inval_turn(world.queue) == turn)
			fail("slot %u has its turn still", slot);

		/* The same reader may get the next turn only if it has moved meanwhile. */
		if (next == (int32_t) slot && moves % 2 == 0 && atomic_load(&world.moves[slot]) == moves)
			fail("slot %u was busy, and gets the next turn as well", slot);
		count(next != HERALD_INVAL_NOBODY ? COUNT_PASSED_ON : COUNT_PASSED_ON_TO_NONE);
	}
	pthread_mutex_unlock(&world.lock);
	return next;
}

static void
wake(Reader *reader)
{
	atomic_fetch_add(&world.signals_out, 1);
	sem_post(&reader->signal);
}

/* A turn begins with a new serial, when the turn is free, and ends with that serial. */
bool
trace_exchange(const void *word, uint64_t old, uint64_t next, bool done)
{
	bool		begins = holder_of(next) != HERALD_INVAL_NOBODY;

	if (word != &world.queue->turn || !done)
		return done;
	if (begins == (holder_of(old) != HERALD_INVAL_NOBODY))
		fail("the turn went from slot %d to slot %d", holder_of(old), holder_of(next));
	if ((uint32_t) (next >> 32) != (uint32_t) (old >> 32) + begins)
		fail("the turn %llu came after %llu", (unsigned long long) (next >> 32),
			 (unsigned long long) (old >> 32));
	atomic_fetch_add(begins ? &world.turns_given : &world.turns_ended, 1);
	return done;
}

void
world_print(void)
{
	HeraldInvalQueue *queue = world.queue;
	static const char *const states[] = {"free", "reading", "reset", "?"};

	fprintf(stderr, "head %llu, turn of %d\n", (unsigned long long) atomic_load(&queue->head),
			holder_of(herald_inval_turn(queue)));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		fprintf(stderr, "slot %u: %s at %llu%s\n", slot, states[word_of(slot) & 3],
				(unsigned long long) herald_inval_position(word_of(slot)),
				atomic_load(&queue->readers[slot].stuck) != 0 ? ", stuck" : "");
}

void
world_report(double seconds)
{
	double		inserted = (double) atomic_load(&counts[COUNT_INSERTED]);
	double		read = (double) atomic_load(&counts[COUNT_READ]);

	printf("per second: %.0f inserted, %.0f read; nanoseconds each: %.1f to insert, %.1f to read\n",
		   inserted / seconds, read / seconds,
		   (double) atomic_load(&world.insert_ns) / inserted,
		   (double) atomic_load(&world.read_ns) / read);
}
