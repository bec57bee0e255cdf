/*-------------------------------------------------------------------------
 *
 * inval_support.h
 *	  Shared by the tests of inval_queue.c: messages that depend on their
 *	  position, and readers at given positions.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef INVAL_SUPPORT_H
#define INVAL_SUPPORT_H

#include "support.h"

#include "inval_queue.h"

#define SIZE	HERALD_INVAL_SIZE_MIN
#define SLOTS	8

/* Half of the ring, and a sixteenth. */
#define HALF	(SIZE / HERALD_INVAL_CLEANUP_MIN)
#define QUANTUM (SIZE / HERALD_INVAL_CLEANUP_QUANTUM)

/* Shortly before the lower 32 bits wrap, and a lap ends. */
#define HIGH_POSITION	((UINT64_C(5) << 32) - 100)

static inline HeraldInvalQueue *
queue_new_of(uint32_t size, uint32_t slots)
{
	HeraldInvalQueue *queue = memory_new(herald_inval_memory(size, slots));

	herald_inval_init(queue, size, slots);
	return queue;
}

static inline HeraldInvalQueue *
queue_new(void)
{
	return queue_new_of(SIZE, SLOTS);
}

/* Each word of a message depends on its position. */
static inline HeraldInvalidation
message_for(uint64_t position)
{
	return (HeraldInvalidation) {
		.database = (uint32_t) position,.cache = (uint32_t) (position * 7 + 1),
		.key = (uint32_t) (position ^ 0xDEADBEEF),.xid = (uint32_t) (position >> 32) + 3
	};
}

static inline uint64_t
head_of(HeraldInvalQueue *queue)
{
	return atomic_load(&queue->head);
}

/* One insert. */
static inline int32_t
insert(HeraldInvalQueue *queue, uint32_t count)
{
	HeraldInvalidation messages[HERALD_INVAL_WRITE_QUANTUM];

	for (uint32_t i = 0; i < count; i++)
		messages[i] = message_for(head_of(queue) + i);
	return herald_inval_insert(queue, messages, count);
}

/* Inserts of one message each; returns the slot that was signalled, which is one at most. */
static inline int32_t
insert_singly(HeraldInvalQueue *queue, uint32_t count)
{
	int32_t		signalled = HERALD_INVAL_NOBODY;

	for (uint32_t i = 0; i < count; i++)
	{
		int32_t		slot = insert(queue, 1);

		if (slot != HERALD_INVAL_NOBODY)
		{
			assert_int_equal(signalled, HERALD_INVAL_NOBODY);
			signalled = slot;
		}
	}
	return signalled;
}

static inline HeraldInvalState
state_of(HeraldInvalQueue *queue, uint32_t slot)
{
	return herald_inval_state(atomic_load(&queue->readers[slot].word));
}

static inline uint64_t
position_of(HeraldInvalQueue *queue, uint32_t slot)
{
	return herald_inval_position(atomic_load(&queue->readers[slot].word));
}

/* Read once, and check what was read; returns what herald_inval_read() does. */
static inline int
read_once(HeraldInvalQueue *queue, uint32_t slot)
{
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];
	uint64_t	position = position_of(queue, slot);
	int			count = herald_inval_read(queue, slot, messages);

	for (int i = 0; i < count; i++)
	{
		HeraldInvalidation expected = message_for(position + (uint64_t) i);

		assert_memory_equal(&messages[i], &expected, sizeof(expected));
	}
	return count;
}

static inline uint64_t
read_all(HeraldInvalQueue *queue, uint32_t slot)
{
	uint64_t	total = 0;
	int			count;

	while ((count = read_once(queue, slot)) > 0)
		total += (uint64_t) count;
	assert_int_equal(count, 0);
	assert_true(herald_inval_is_current(queue, slot));
	return total;
}

static inline int32_t
turn_of(HeraldInvalQueue *queue)
{
	return (int32_t) (uint32_t) herald_inval_turn(queue) - 1;
}

static inline void
assert_counts(HeraldInvalQueue *queue, uint64_t resets, uint64_t signals)
{
	assert_int_equal(atomic_load(&queue->resets), resets);
	assert_int_equal(atomic_load(&queue->signals), signals);
}

/*
 * A queue with readers that are `behind` messages behind (0: a free slot), and no
 * turn given.  The next insert looks after the readers.
 */
static inline HeraldInvalQueue *
queue_new_behind(const uint32_t behind[SLOTS])
{
	HeraldInvalQueue *queue = queue_new();

	atomic_store(&queue->head, HIGH_POSITION);
	atomic_store(&queue->slots_used, SLOTS);
	queue->look_at = HIGH_POSITION;
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		if (behind[slot] > 0)
			atomic_store(&queue->readers[slot].word,
						 (HIGH_POSITION - behind[slot]) << 2 | HERALD_INVAL_READING);
	}
	for (uint64_t position = HIGH_POSITION - SIZE; position < HIGH_POSITION; position++)
	{
		HeraldInvalidation message = message_for(position);

		memcpy((char *) &queue->readers[SLOTS] + position % SIZE * sizeof(message),
			   &message, sizeof(message));
	}
	return queue;
}

#endif							/* INVAL_SUPPORT_H */
