/*-------------------------------------------------------------------------
 *
 * inval_queue.c
 *	  The queue of invalidations, and each reader's position in it.
 *
 * Logically the queue is an endless array of messages: `head` is where the next message goes,
 * and each reader has its own position.  Only the last `size` messages exist, in a ring.
 * Positions never wrap: 62 bits last for a hundred thousand years at a million messages a
 * second.
 *
 * Inserters do not check the readers while it is certain that no reader's next message is
 * overwritten.  That holds until head reaches `look_at`.  Since the last check, readers have
 * only moved forward, and new readers began at the head.  So it is enough that look_at is at
 * most `size` from the position of the reader that was furthest behind at that check.
 *
 * One lock, which the caller holds to insert, to join and to take back a turn, protects head,
 * look_at, `last`, slots_used and the last check, and makes these steps exclusive.  Nothing else
 * is locked:
 *
 *	 a reader's word	moves forward by its reader, READING → RESET by an
 *						inserter, to FREE and back by its reader
 *	 stuck				set with the lock held, cleared by the reader
 *	 turn				changed by exchanging exactly the one that was seen
 *
 * [I1] A process that sees the head sees the messages before it.
 *
 * [I2] No reader uses a message that was overwritten while it was copied.  The inserter first
 * resets the reader, then writes.  The reader first copies, then advances its own word, which
 * fails if it was reset.  If the reader has copied a word of the new message, the reset came
 * before.  This needs a release and an acquire of each word, which are plain moves on most
 * machines.  A single fence in each function would also do, but ThreadSanitizer does not
 * support fences.
 *
 * [I3] If an inserter sees that a reader has read a message, the reader has finished copying
 * it, so the message can be overwritten.
 *
 * [I4] No turn is left with a reader that has left or was reset, and so would never hand it
 * on.  Each side takes two steps, "write mine, then read yours", in one sequentially
 * consistent order: the turn is given, then its holder's state is checked; the state changes,
 * then the turn is checked.
 *
 * [I5] No reader that has caught up stays stuck.
 *
 * [I6] A reader that is far behind at a check is not forgotten because the turn is being
 * handed on at that moment.  Each side takes two steps, in one order, as above: the head
 * moves, then the turn is checked; the turn is made free, then the head is checked.  (A reader
 * that falls far behind between two checks waits for the next check, at most size /
 * CLEANUP_QUANTUM messages later.)
 *
 * A turn whose holder has read nothing since the last check is taken back.  That needs no clock,
 * and no process that looks after the turn: a reader is in danger only while messages come, and
 * each 1/16 of the ring brings a check.  If messages come so fast that a holder was not running
 * yet, it still reads, since it has its signal; only another reader is woken besides.
 *
 * The next holder is chosen from words that may be out of date.  This is harmless: a reader
 * that has caught up meanwhile gets an unnecessary signal, and hands the turn on.
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
static int32_t check_turn(HeraldInvalQueue *queue);
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

/* The word of the turn's holder; 0: none has the turn. */
static inline uint64_t
holder_word(HeraldInvalQueue *queue, uint64_t turn)
{
	int32_t		slot = turn_holder(turn);

	return slot == HERALD_INVAL_NOBODY ? 0 :
		atomic_load_explicit(&queue->readers[slot].word, memory_order_relaxed);
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

	/*
	 * No other process changes the word now: inserters, which reset it, need
	 * the lock.
	 */
	atomic_store_explicit(&reader->word, make_word(head, HERALD_INVAL_READING),
						  memory_order_relaxed);
}

bool
herald_inval_skip(HeraldInvalQueue *queue, uint32_t slot, uint32_t database)
{
	uint64_t	word = atomic_load_explicit(&queue->readers[slot].word, memory_order_relaxed);

	/*
	 * The word of a reader that was reset still has the position that it had
	 * reached.
	 */
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
	 * [I2] The copies are valid only if we have not been reset meanwhile.
	 * [I3] release: pairs with needed_by(); the copies are complete.
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
 * [I5] The turn first, then `stuck`.  If a process has taken the turn back, we see its mark; if
 * it comes too late to take the turn, it clears its mark itself.
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
	 * [I1] release: pairs with herald_inval_read() and
	 * herald_inval_is_current().  [I6] before the turn is checked: pairs with
	 * furthest_behind().
	 */
	atomic_store_explicit(&queue->head, head + count, memory_order_seq_cst);
	return look ? check_turn(queue) : HERALD_INVAL_NOBODY;
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
	atomic_fetch_add_explicit(&queue->rescues, 1, memory_order_relaxed);
	return give_turn(queue);
}

/*
 * The head is about to move to `head`: reset the readers whose next message this overwrites,
 * and decide when to check again.
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
 * The position from which this reader needs the queue once the head has moved to `head`;
 * `head`: it needs nothing.  A reader whose next message this overwrites is reset.
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

/* Give the turn if it is free, or if its holder has read nothing since the last check. */
static int32_t
check_turn(HeraldInvalQueue *queue)
{
	/* [I6] after the head has moved: pairs with furthest_behind() */
	uint64_t	turn = atomic_load_explicit(&queue->turn, memory_order_seq_cst);
	int32_t		next;

	if (turn_holder(turn) != HERALD_INVAL_NOBODY && turn == queue->checked_turn &&
		holder_word(queue, turn) == queue->checked_word)
		next = herald_inval_rescue(queue, turn);
	else
		next = give_turn(queue);

	queue->checked_turn = atomic_load_explicit(&queue->turn, memory_order_relaxed);
	queue->checked_word = holder_word(queue, queue->checked_turn);
	return next;
}

/*
 * If the turn is free, give it to the reader that is furthest behind.  Returns that reader's
 * slot, for the caller to signal, or HERALD_INVAL_NOBODY.
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

		/* Number each turn, so that no process confuses it with a later one. */
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
			/*
			 * [I5] A process that has taken the turn back may have marked a
			 * reader that has joined in this slot meanwhile.
			 */
			clear_stuck(&queue->readers[slot]);
			return HERALD_INVAL_NOBODY;
		}
	}
}

/* End exactly this turn.  False: it has ended already. */
static bool
take_turn_back(HeraldInvalQueue *queue, uint64_t turn)
{
	return atomic_compare_exchange_strong_explicit(&queue->turn, &turn, turn >> 32 << 32,
												   memory_order_seq_cst,
												   memory_order_seq_cst);
}

/*
 * If this slot has the turn, hand it to the next reader.  Returns that reader's slot, or
 * HERALD_INVAL_NOBODY.
 */
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
 * The reader that is furthest behind of those that are far behind and not stuck.  A position
 * may be ahead of the head that we loaded.
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
