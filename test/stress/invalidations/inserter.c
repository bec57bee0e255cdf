/*-------------------------------------------------------------------------
 *
 * inserter.c
 *	  Inserting in the stress of the queue of invalidations.
 *
 * Around each insert, while the lock keeps other inserters from moving the head
 * and resetting readers, it is checked that exactly the readers that needed an
 * overwritten message were reset, and that none of them keeps the turn.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <unistd.h>

#include "stress.h"

#define PAUSE_US_MAX	2000

static void insert(Inserter *inserter);
static void check_readers(const uint64_t before[SLOTS], uint64_t turn_before);


void
inserter_act(void *arg)
{
	Inserter   *inserter = arg;

	for (uint32_t i = 0; i < world.inserts; i++)
	{
		insert(inserter);
		atomic_fetch_add(&run.steps, 1);
		if (one_in(&inserter->random, world.pause_one_in))
			usleep((useconds_t) (herald_random(&inserter->random) % PAUSE_US_MAX));
	}
}

static void
insert(Inserter *inserter)
{
	HeraldInvalQueue *queue = world.queue;
	HeraldInvalidation messages[HERALD_INVAL_WRITE_QUANTUM];
	uint32_t	n = 1 + (uint32_t) (herald_random(&inserter->random) %
									(one_in(&inserter->random, 2) ? HERALD_INVAL_WRITE_QUANTUM : 3));
	uint64_t	before[SLOTS];
	uint64_t	turn;
	uint64_t	look_at;
	uint64_t	rescues;
	uint64_t	start;
	int32_t		signalled;

	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0; i < n; i++)
		messages[i] = message_make(inserter->index, world.inserted + i);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		before[slot] = word_of(slot);
	turn = herald_inval_turn(queue);
	look_at = queue->look_at;

	rescues = atomic_load_explicit(&queue->rescues, memory_order_relaxed);
	start = now_ns();
	signalled = herald_inval_insert(queue, messages, n);
	count_time(&world.insert_ns, start);
	count_many(COUNT_TAKEN_BACK, atomic_load_explicit(&queue->rescues, memory_order_relaxed) - rescues);
	world.inserted += n;
	if (atomic_load_explicit(&queue->head, memory_order_relaxed) >= look_at)
		world.last_look = atomic_load_explicit(&queue->head, memory_order_relaxed);
	check_readers(before, turn);
	pthread_mutex_unlock(&world.lock);

	count_many(COUNT_INSERTED, n);
	send_signal(signalled);
}

static void
check_readers(const uint64_t before[SLOTS], uint64_t turn_before)
{
	HeraldInvalQueue *queue = world.queue;
	uint64_t	head = atomic_load_explicit(&queue->head, memory_order_relaxed);

	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		uint64_t	word = word_of(slot);
		uint64_t	position = herald_inval_position(word);
		bool		was_reading = herald_inval_state(before[slot]) == HERALD_INVAL_READING;

		if (herald_inval_state(word) == HERALD_INVAL_READING && position + queue->size < head)
			fail("slot %u needs %llu, which the head %llu has overwritten", slot,
				 (unsigned long long) position, (unsigned long long) head);
		if (herald_inval_state(word) != HERALD_INVAL_RESET || !was_reading)
			continue;

		/* Reset by this insert. */
		if (herald_inval_position(before[slot]) + queue->size >= head)
			fail("slot %u, which needs %llu, was reset, with the head at %llu", slot,
				 (unsigned long long) herald_inval_position(before[slot]),
				 (unsigned long long) head);
		count(COUNT_RESETS);
		if (holder_of(turn_before) == (int32_t) slot)
		{
			count(COUNT_RESETS_OF_HOLDER);
			if (herald_inval_turn(queue) == turn_before)
				fail("slot %u was reset and still has the turn", slot);
		}
	}
}

/* Mixes all bits into all others. */
static uint32_t
mix(uint32_t n)
{
	n = (n ^ (n >> 16)) * UINT32_C(0x45D9F3B);
	n = (n ^ (n >> 16)) * UINT32_C(0x45D9F3B);
	return n ^ (n >> 16);
}

HeraldInvalidation
message_make(uint32_t inserter, uint32_t number)
{
	return (HeraldInvalidation) {
		.database = inserter,.cache = number,
		.key = mix(number + inserter),.xid = mix(number * 3 + inserter)
	};
}

bool
message_is_intact(const HeraldInvalidation *message)
{
	HeraldInvalidation expected = message_make(message->database, message->cache);

	return message->database < INSERTERS && message->key == expected.key &&
		message->xid == expected.xid;
}
