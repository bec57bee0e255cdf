/*-------------------------------------------------------------------------
 *
 * inval_queue.c
 *	  The queue of invalidations, and how far each reader is.
 *
 * Think of an endless array of messages: `head` is where the next one goes,
 * and each reader has a position of its own in it.  Only the last `size` of
 * them exist, in a ring.  Positions are counted through and never wrap: 62 bits
 * last for a hundred thousand years at a million messages a second.
 *
 * Inserters do not look at the readers, as long as it is certain that nobody's
 * next message is overwritten.  `look_at` says how long that is.  Where all
 * readers were when somebody last looked, they are still or further on, and
 * readers that have joined since began at the head.  So it is enough that look_at is at
 * most `size` from the reader that was furthest behind then.
 *
 * One lock, which the caller holds to insert and to join, protects head, look_at,
 * `last` and slots_used, and keeps those two apart.  Nothing else is locked:
 *
 *	 a reader's word	moves forward by its reader, READING → RESET by an
 *						inserter, to FREE and back by its reader
 *	 stuck				set by the watchdog, cleared by the reader
 *	 turn				changed by exchanging exactly the one that was seen
 *
 * [I1] A process that sees the head sees the messages before it.
 *
 * [I2] Nobody acts on a message that was overwritten while he copied it.  The
 * inserter first resets the reader, then writes; the reader first copies, then
 * moves its own word on, which fails if it was reset.  Has it copied a word of
 * the new message, then the reset came before that.  This takes a release of
 * each word and an acquire of each, which is no more than a move on most
 * machines; a single fence in each function would do as well, but
 * ThreadSanitizer does not understand fences.
 *
 * [I3] Nor does a message change before a reader has copied it that was
 * counted on to have read it.
 *
 * [I4] No turn is left with a reader that has gone or was reset, and so never hands
 * it on.  Two steps each, "write mine, then read yours", in one sequentially
 * consistent order: the turn is given, then its holder's state is looked at;
 * the state changes, then the turn is looked at.
 *
 * [I5] No reader that has caught up stays stuck.
 *
 * [I6] A reader that is far behind at a look is not forgotten because the turn
 * is just being handed on.  Two steps each, in one order, as above: the head
 * moves, then the turn is looked at; the turn is made free, then the head is
 * looked at.  (A reader that falls far behind between two looks waits for the next, at
 * most size / CLEANUP_QUANTUM messages later.)
 *
 * The next turn is decided from words that may be a moment old.  No harm is
 * done: a reader that has read on meanwhile gets a signal for little, and hands the turn
 * on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval_queue.h"

#include <assert.h>
#include <string.h>

#define WORDS_PER_MESSAGE	(sizeof(HeraldInvalidation) / sizeof(uint64_t))

static void look_after_readers(HeraldInvalQueue *queue, uint64_t head);
static uint64_t needed_by(HeraldInvalQueue *queue, uint32_t slot, uint64_t head);
static int32_t give_turn(HeraldInvalQueue *queue);
static bool take_turn_back(HeraldInvalQueue *queue, uint64_t turn);
static int32_t hand_turn_on(HeraldInvalQueue *queue, uint32_t slot);
static int32_t furthest_behind(HeraldInvalQueue *queue);

static inline uint64_t
make_word(uint64_t position, HeraldInvalState state)
{
	return position << 2 | state;
}

static inline int32_t
turn_holder(uint64_t turn)
{
	return (int32_t) (uint32_t) turn - 1;
}

static inline _Atomic uint64_t *
message_at(HeraldInvalQueue *queue, uint64_t position)
{
	_Atomic uint64_t *messages = (_Atomic uint64_t *) &queue->readers[queue->slots];

	return messages + (position & (queue->size - 1)) * WORDS_PER_MESSAGE;
}

static inline void
clear_stuck(HeraldInvalReader *reader)
{
	if (atomic_load_explicit(&reader->stuck, memory_order_relaxed) != 0)
		atomic_store_explicit(&reader->stuck, 0, memory_order_relaxed);
}


size_t
herald_inval_memory(uint32_t size, uint32_t slots)
{
	static_assert(sizeof(HeraldInvalidation) == 16, "messages have no padding");
	static_assert(sizeof(HeraldInvalReader) == HERALD_CACHE_LINE, "each has a line of its own");
	static_assert(HERALD_INVAL_CLEANUP_QUANTUM % HERALD_INVAL_CLEANUP_MIN == 0,
				  "the first look is at a quantum");

	return sizeof(HeraldInvalQueue) + slots * sizeof(HeraldInvalReader) +
		size * sizeof(HeraldInvalidation);
}

void
herald_inval_init(HeraldInvalQueue *queue, uint32_t size, uint32_t slots)
{
	assert(size >= HERALD_INVAL_SIZE_MIN && (size & (size - 1)) == 0);
	assert((uintptr_t) queue % HERALD_CACHE_LINE == 0);

	memset((void *) queue, 0, herald_inval_memory(size, slots));
	queue->size = size;
	queue->slots = slots;
	queue->look_at = size / HERALD_INVAL_CLEANUP_MIN;
}

void
herald_inval_join(HeraldInvalQueue *queue, uint32_t slot)
{
	HeraldInvalReader *reader = &queue->readers[slot];
	uint64_t	head = atomic_load_explicit(&queue->head, memory_order_relaxed);

	assert(slot < queue->slots);
	if (atomic_load_explicit(&queue->slots_used, memory_order_relaxed) <= slot)
		atomic_store_explicit(&queue->slots_used, slot + 1, memory_order_relaxed);
	atomic_store_explicit(&reader->stuck, 0, memory_order_relaxed);

	/* Nobody else changes the word: inserters, which reset it, need the lock. */
	atomic_store_explicit(&reader->word, make_word(head, HERALD_INVAL_READING),
						  memory_order_relaxed);
}

bool
herald_inval_skip(HeraldInvalQueue *queue, uint32_t slot, uint32_t database)
{
	uint64_t	word = atomic_load_explicit(&queue->readers[slot].word, memory_order_relaxed);

	/* The word of a reader that was reset has the position that it had reached. */
	if (herald_inval_state(word) != HERALD_INVAL_RESET ||
		queue->last[database % HERALD_INVAL_DATABASES] > herald_inval_position(word))
		return false;
	herald_inval_join(queue, slot);
	return true;
}

int32_t
herald_inval_leave(HeraldInvalQueue *queue, uint32_t slot)
{
	/* [I4] pairs with give_turn() */
	atomic_store_explicit(&queue->readers[slot].word, make_word(0, HERALD_INVAL_FREE),
						  memory_order_seq_cst);
	return hand_turn_on(queue, slot);
}

int
herald_inval_read(HeraldInvalQueue *queue, uint32_t slot, HeraldInvalidation *messages)
{
	HeraldInvalReader *reader = &queue->readers[slot];
	uint64_t	word = atomic_load_explicit(&reader->word, memory_order_relaxed);
	uint64_t	position = herald_inval_position(word);
	uint64_t	count;

	if (herald_inval_state(word) != HERALD_INVAL_READING)
		return -1;

	/* [I1] acquire: pairs with herald_inval_insert() */
	count = atomic_load_explicit(&queue->head, memory_order_acquire) - position;
	if (count == 0)
		return 0;
	if (count > HERALD_INVAL_READ_QUANTUM)
		count = HERALD_INVAL_READ_QUANTUM;

	for (uint64_t i = 0; i < count; i++)
	{
		_Atomic uint64_t *from = message_at(queue, position + i);
		uint64_t	words[WORDS_PER_MESSAGE];

		/* [I2] acquire: pairs with herald_inval_insert() */
		for (size_t w = 0; w < WORDS_PER_MESSAGE; w++)
			words[w] = atomic_load_explicit(&from[w], memory_order_acquire);
		memcpy(&messages[i], words, sizeof(words));
	}

	/*
	 * [I2] Only if we have not been reset meanwhile, is this what it seems.
	 * [I3] release: pairs with needed_by(); the copies are made.
	 */
	if (!atomic_compare_exchange_strong_explicit(&reader->word, &word,
												 make_word(position + count, HERALD_INVAL_READING),
												 memory_order_release,
												 memory_order_relaxed))
		return -1;
	clear_stuck(reader);
	return (int) count;
}

/*
 * [I5] The turn first, then `stuck`.  If the watchdog has taken the turn, its
 * mark is seen; if it comes too late for that, it takes its mark back.
 */
int32_t
herald_inval_caught_up(HeraldInvalQueue *queue, uint32_t slot)
{
	int32_t		next = hand_turn_on(queue, slot);

	clear_stuck(&queue->readers[slot]);
	return next;
}

int32_t
herald_inval_insert(HeraldInvalQueue *queue, const HeraldInvalidation *messages, uint32_t count)
{
	uint64_t	head = atomic_load_explicit(&queue->head, memory_order_relaxed);
	bool		look = head + count >= queue->look_at;

	assert(count <= HERALD_INVAL_WRITE_QUANTUM);
	if (look)
		look_after_readers(queue, head + count);

	for (uint32_t i = 0; i < count; i++)
	{
		_Atomic uint64_t *to = message_at(queue, head + i);
		uint64_t	words[WORDS_PER_MESSAGE];

		/* [I2] release, after the resets: pairs with herald_inval_read() */
		memcpy(words, &messages[i], sizeof(words));
		for (size_t w = 0; w < WORDS_PER_MESSAGE; w++)
			atomic_store_explicit(&to[w], words[w], memory_order_release);
		queue->last[messages[i].database % HERALD_INVAL_DATABASES] = head + i + 1;
	}

	/*
	 * [I1] release: pairs with herald_inval_read() and herald_inval_is_current().
	 * [I6] before the turn is looked at: pairs with furthest_behind().
	 */
	atomic_store_explicit(&queue->head, head + count, memory_order_seq_cst);
	return look ? give_turn(queue) : HERALD_INVAL_NOBODY;
}

int32_t
herald_inval_rescue(HeraldInvalQueue *queue, uint64_t turn)
{
	int32_t		slot = turn_holder(turn);
	HeraldInvalReader *reader;

	if (slot == HERALD_INVAL_NOBODY || herald_inval_turn(queue) != turn)
		return HERALD_INVAL_NOBODY;

	/* [I5] The mark first: pairs with herald_inval_caught_up(). */
	reader = &queue->readers[slot];
	atomic_store_explicit(&reader->stuck, 1, memory_order_relaxed);
	if (!take_turn_back(queue, turn))
	{
		clear_stuck(reader);
		return HERALD_INVAL_NOBODY;
	}
	return give_turn(queue);
}

/*
 * The head is about to move to `head`: reset the readers that need what that overwrites,
 * and decide when to look again.
 */
static void
look_after_readers(HeraldInvalQueue *queue, uint64_t head)
{
	uint32_t	used = atomic_load_explicit(&queue->slots_used, memory_order_relaxed);
	uint64_t	quantum = queue->size / HERALD_INVAL_CLEANUP_QUANTUM;
	uint64_t	next = queue->size / HERALD_INVAL_CLEANUP_MIN;
	uint64_t	needed = head;
	uint64_t	full;

	for (uint32_t slot = 0; slot < used; slot++)
	{
		uint64_t	position = needed_by(queue, slot, head);

		if (position < needed)
			needed = position;
	}

	full = head - needed;
	if (full >= next)
		next = (full / quantum + 1) * quantum;
	if (next > queue->size)
		next = queue->size;
	queue->look_at = needed + next;
}

/*
 * From where on this reader needs the queue when the head has moved to `head`;
 * `head`: nothing of it.  A reader that needs what is gone by then is reset.
 */
static uint64_t
needed_by(HeraldInvalQueue *queue, uint32_t slot, uint64_t head)
{
	HeraldInvalReader *reader = &queue->readers[slot];

	/* [I3] acquire: pairs with herald_inval_read() */
	uint64_t	word = atomic_load_explicit(&reader->word, memory_order_acquire);

	while (herald_inval_state(word) == HERALD_INVAL_READING)
	{
		uint64_t	position = herald_inval_position(word);

		if (position + queue->size >= head)
			return position;

		/* [I2] before the messages are written; [I4] pairs with give_turn(). */
		if (atomic_compare_exchange_strong_explicit(&reader->word, &word,
													make_word(position, HERALD_INVAL_RESET),
													memory_order_seq_cst,
													memory_order_acquire))
		{
			uint64_t	turn = atomic_load_explicit(&queue->turn, memory_order_seq_cst);

			atomic_fetch_add_explicit(&queue->resets, 1, memory_order_relaxed);
			if (turn_holder(turn) == (int32_t) slot)
				(void) take_turn_back(queue, turn);
			break;
		}
	}
	return head;
}

/*
 * If the turn is free, give it to the reader that is furthest behind.  Returns which
 * got it, and is to be signalled.
 */
static int32_t
give_turn(HeraldInvalQueue *queue)
{
	for (;;)
	{
		uint64_t	turn = atomic_load_explicit(&queue->turn, memory_order_seq_cst);
		int32_t		slot;
		uint64_t	next;
		uint64_t	word;

		if (turn_holder(turn) != HERALD_INVAL_NOBODY)
			return HERALD_INVAL_NOBODY;
		slot = furthest_behind(queue);
		if (slot == HERALD_INVAL_NOBODY)
			return HERALD_INVAL_NOBODY;

		/* A number for each turn: nobody takes a later one for it. */
		next = ((turn >> 32) + 1) << 32 | ((uint32_t) slot + 1);
		if (!atomic_compare_exchange_strong_explicit(&queue->turn, &turn, next,
													 memory_order_seq_cst,
													 memory_order_relaxed))
			return HERALD_INVAL_NOBODY;

		/* [I4] pairs with herald_inval_leave() and needed_by() */
		word = atomic_load_explicit(&queue->readers[slot].word, memory_order_seq_cst);
		if (herald_inval_state(word) == HERALD_INVAL_READING)
		{
			atomic_fetch_add_explicit(&queue->signals, 1, memory_order_relaxed);
			return slot;
		}
		if (!take_turn_back(queue, next))
		{
			/* [I5] The watchdog may have marked the reader that joins in this slot by now. */
			clear_stuck(&queue->readers[slot]);
			return HERALD_INVAL_NOBODY;
		}
	}
}

/* End this very turn.  False: it has ended already. */
static bool
take_turn_back(HeraldInvalQueue *queue, uint64_t turn)
{
	return atomic_compare_exchange_strong_explicit(&queue->turn, &turn, turn >> 32 << 32,
												   memory_order_seq_cst,
												   memory_order_seq_cst);
}

/* If this slot has the turn, the next one gets it.  Returns which. */
static int32_t
hand_turn_on(HeraldInvalQueue *queue, uint32_t slot)
{
	/* [I4] after the word has changed: pairs with give_turn() */
	uint64_t	turn = atomic_load_explicit(&queue->turn, memory_order_seq_cst);

	if (turn_holder(turn) != (int32_t) slot || !take_turn_back(queue, turn))
		return HERALD_INVAL_NOBODY;
	return give_turn(queue);
}

/*
 * The reader that is far behind, further than all others, and not stuck.  A position may
 * be ahead of the head that we saw before.
 */
static int32_t
furthest_behind(HeraldInvalQueue *queue)
{
	/* [I6] after the turn was made free: pairs with herald_inval_insert() */
	uint64_t	head = atomic_load_explicit(&queue->head, memory_order_seq_cst);
	uint32_t	used = atomic_load_explicit(&queue->slots_used, memory_order_relaxed);
	uint64_t	limit = queue->size / HERALD_INVAL_FAR_BEHIND;
	uint64_t	furthest = UINT64_MAX;
	int32_t		found = HERALD_INVAL_NOBODY;

	for (uint32_t slot = 0; slot < used; slot++)
	{
		HeraldInvalReader *reader = &queue->readers[slot];
		uint64_t	word = atomic_load_explicit(&reader->word, memory_order_relaxed);
		uint64_t	position = herald_inval_position(word);

		if (herald_inval_state(word) == HERALD_INVAL_READING &&
			position + limit <= head && position < furthest &&
			atomic_load_explicit(&reader->stuck, memory_order_relaxed) == 0)
		{
			furthest = position;
			found = (int32_t) slot;
		}
	}
	return found;
}
