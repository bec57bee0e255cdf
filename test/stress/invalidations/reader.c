/*-------------------------------------------------------------------------
 *
 * reader.c
 *	  Reading in the stress of the queue of invalidations.
 *
 * A reader reads by itself, or sleeps until it is signalled, gets stuck in the
 * middle of reading, leaves with or without the turn, and comes back in another
 * slot.  Each message that it reads must be the very next one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>

#include "stress.h"

#define SLEEP_US_MAX	3000
#define STICK_US_MAX	12000
#define STICK_ONE_IN	256		/* of the reads */
#define LEAVE_ONE_IN	64		/* of the passes; as often in the middle of one */

static bool wait_for_signal(Reader *reader);
static void join(Reader *reader);
static void leave(Reader *reader);
static void read_pass(Reader *reader);
static int	read_some(Reader *reader);
static void take_slot(Reader *reader);
static void hand_on(Reader *reader);


void
reader_act(void *arg)
{
	Reader	   *reader = arg;

	while (current_phase() < PHASE_VERIFY)
	{
		bool		is_signalled;

		if (!reader->joined)
			join(reader);
		if (current_phase() == PHASE_QUIESCE)
			atomic_store(&reader->parked, 1);
		is_signalled = wait_for_signal(reader);
		if (current_phase() < PHASE_VERIFY && (is_signalled || one_in(&reader->random, 4)))
			read_pass(reader);
		if (reader->joined && current_phase() == PHASE_ACTIVE &&
			one_in(&reader->random, LEAVE_ONE_IN))
			leave(reader);
		if (is_signalled)
			atomic_fetch_sub(&world.signals_out, 1);
	}
	atomic_store(&reader->parked, 0);
}

void
reader_finish(Reader *reader)
{
	int			result;

	if (!reader->joined)
		return;
	while ((result = read_some(reader)) > 0)
		;
	if (result < 0)
		join(reader);
	hand_on(reader);
	if (reader->next != world.inserted)
		fail("reader %u has read up to %u, of %u", reader->index, reader->next, world.inserted);
	if (!herald_inval_is_current(world.queue, reader->slot))
		fail("reader %u has read everything, but is not current", reader->index);
}

/* True: we were signalled. */
static bool
wait_for_signal(Reader *reader)
{
	if (atomic_load(&reader->parked) == 0)
		return signal_wait_for(&reader->signal, herald_random(&reader->random) % SLEEP_US_MAX * 1000);
	signal_wait(&reader->signal);
	return true;
}

/* For the first time, or again: it misses everything up to now, and nothing after. */
static void
join(Reader *reader)
{
	if (!reader->joined)
		take_slot(reader);
	pthread_mutex_lock(&world.lock);
	atomic_fetch_add(&world.moves[reader->slot], 1);
	herald_inval_join(world.queue, reader->slot);
	atomic_fetch_add(&world.moves[reader->slot], 1);
	reader->next = world.inserted;
	pthread_mutex_unlock(&world.lock);
	reader->joined = true;
	count(COUNT_JOINS);
}

/* As at a backend's exit: the slot is free for the next reader only when we have left. */
static void
leave(Reader *reader)
{
	if (holder_of(herald_inval_turn(world.queue)) == (int32_t) reader->slot)
		count(COUNT_LEFT_WITH_TURN);
	reader->joined = false;
	send_signal(herald_inval_leave(world.queue, reader->slot));

	atomic_store(&world.owner[reader->slot], 0);
	pthread_mutex_lock(&world.slots_lock);
	world.slot_taken[reader->slot] = false;
	pthread_mutex_unlock(&world.slots_lock);
}

static void
read_pass(Reader *reader)
{
	_Atomic uint32_t *stuck = &world.queue->readers[reader->slot].stuck;
	bool		is_active = current_phase() == PHASE_ACTIVE;
	int			result;

	while ((result = read_some(reader)) > 0)
	{
		if (is_active && one_in(&reader->random, STICK_ONE_IN))
		{
			usleep((useconds_t) (herald_random(&reader->random) % STICK_US_MAX));
			if (atomic_load_explicit(stuck, memory_order_relaxed) != 0)
				count(COUNT_STUCK_AND_BACK);
		}
		if (is_active && one_in(&reader->random, LEAVE_ONE_IN))
		{
			count(COUNT_LEFT_MIDWAY);
			leave(reader);
			return;
		}
	}
	if (result < 0)
		join(reader);
	hand_on(reader);
	count(COUNT_PASSES);
}

/* One read, checked.  Returns what herald_inval_read() does. */
static int
read_some(Reader *reader)
{
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];
	bool		was_reset = herald_inval_state(word_of(reader->slot)) == HERALD_INVAL_RESET;
	uint64_t	start = now_ns();
	int			n;

	atomic_fetch_add(&world.moves[reader->slot], 1);
	n = herald_inval_read(world.queue, reader->slot, messages);
	count_time(&world.read_ns, start);
	atomic_fetch_add(&world.moves[reader->slot], 1);
	for (int i = 0; i < n; i++)
	{
		if (!message_is_intact(&messages[i]))
			fail("reader %u got a damaged message instead of %u", reader->index, reader->next);
		if (messages[i].cache != reader->next)
			fail("reader %u got %u instead of %u", reader->index, messages[i].cache, reader->next);
		reader->next++;
	}
	if (n > 0)
		count_many(COUNT_READ, (uint64_t) n);
	if (n < 0 && !was_reset)
		count(COUNT_RESETS_MIDWAY);
	return n;
}

static void
hand_on(Reader *reader)
{
	int32_t		next;

	atomic_fetch_add(&world.moves[reader->slot], 1);
	next = herald_inval_caught_up(world.queue, reader->slot);
	atomic_fetch_add(&world.moves[reader->slot], 1);
	if (next != HERALD_INVAL_NOBODY)
		count(COUNT_HANDED_ON);
	send_signal(next);
}

/* Any free slot: late signals to its last owner may arrive there. */
static void
take_slot(Reader *reader)
{
	uint32_t	slot = (uint32_t) (herald_random(&reader->random) % SLOTS);

	pthread_mutex_lock(&world.slots_lock);
	while (world.slot_taken[slot])
		slot = (slot + 1) % SLOTS;
	world.slot_taken[slot] = true;
	pthread_mutex_unlock(&world.slots_lock);
	reader->slot = slot;
	atomic_store(&world.owner[slot], reader->index + 1);
}
