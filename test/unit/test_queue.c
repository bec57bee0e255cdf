/*-------------------------------------------------------------------------
 *
 * test_queue.c
 *	  Unit tests of queue.c: reserving, finishing, the ring's wrap, recycling.
 *
 * Guards: a batch is whole, inside one segment, and below the limit; bytes of
 * an older lap are never taken for a header; recycling gives away only
 * what is not needed.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

static const HeraldBatch some_batch = {
	.count = 3,.database = DATABASE,.role = SENDER_ROLE
};

static bool
reserve(HeraldQueue *queue, uint64_t entries_length, HeraldPosition *position)
{
	return herald_queue_reserve(queue, &some_batch, entries_length, position);
}

static void
assert_all_zero(HeraldQueue *queue, HeraldPosition from, HeraldPosition to)
{
	for (; from < to; from += HERALD_ALIGN)
		if (word_at(queue, from) != 0)
			fail_msg("old bytes at %llu", (unsigned long long) from);
}

/* Guards: any size asked for is rounded down to a power of two, with a minimum. */
static void
test_ring_size(void **state UNUSED)
{
	assert_int_equal(herald_queue_ring_size(0), HERALD_RING_MIN);
	assert_int_equal(herald_queue_ring_size(HERALD_RING_MIN * 2 - 1), HERALD_RING_MIN);
	assert_int_equal(herald_queue_ring_size(HERALD_RING_MIN * 2), HERALD_RING_MIN * 2);
	assert_int_equal(herald_queue_ring_size(16 << 20), 16 << 20);
	assert_int_equal(herald_queue_ring_size((16 << 20) + 1), 16 << 20);
	assert_int_equal(herald_queue_ring_size(UINT64_C(8) << 30), UINT64_C(8) << 30);
}

/* Guards: the first position is above zero, the ring zeroed, the limit one lap further. */
static void
test_init(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition head = atomic_load(&queue->head);

	assert_true(head > 0);
	assert_int_equal(head % queue->ring_size, 0);
	assert_int_equal(atomic_load(&queue->tail), head);
	assert_int_equal(atomic_load(&queue->limit), head + queue->ring_size);
	assert_int_equal(atomic_load(&queue->dispatched), head);
	assert_int_equal(atomic_load(&queue->settled), head);
	assert_int_equal(queue->segment_size * HERALD_SEGMENTS, queue->ring_size);
	assert_false(herald_queue_is_short(queue));
	assert_all_zero(queue, head, head + queue->ring_size);
	free(queue);
}

/* Guards: what a reservation leaves in the ring, and what filling adds. */
static void
test_reserve_and_fill(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldPosition position;
	HeraldBatchHeader *header;
	uint64_t	entries[4] = {1, 2, 3, UINT64_MAX};

	assert_true(reserve(queue, sizeof(entries), &position));
	assert_int_equal(position, first);
	assert_int_equal(atomic_load(&queue->head), first + HEADER_SIZE + sizeof(entries));
	header = header_at(queue, position);
	assert_int_equal(header->word, herald_word_make(position, HERALD_BATCH_RESERVED));
	assert_int_equal(header->length, HEADER_SIZE + sizeof(entries));
	assert_int_equal(header->count, 3);
	assert_int_equal(header->database, DATABASE);
	assert_int_equal(header->role, SENDER_ROLE);
	assert_int_equal(header->commit_time, 0);
	assert_int_equal(header->xid, 0);
	assert_all_zero(queue, position + HEADER_SIZE, position + header->length);

	herald_queue_fill(queue, position, entries, sizeof(entries));
	assert_memory_equal(header + 1, entries, sizeof(entries));
	assert_int_equal(header->word, herald_word_make(position, HERALD_BATCH_RESERVED));
	assert_all_zero(queue, position + header->length, first + queue->ring_size);
	free(queue);
}

/* Guards: finishing changes the state, and a commit also the time and the xid; nothing else. */
static void
test_finish(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition kept;
	HeraldPosition dropped;
	HeraldBatchHeader before;

	assert_true(reserve(queue, 64, &kept));
	assert_true(reserve(queue, 64, &dropped));
	before = *header_at(queue, kept);
	herald_queue_commit(queue, kept, INT64_C(-77), SENDER_XID);
	before.word = herald_word_make(kept, HERALD_BATCH_COMMITTED);
	before.commit_time = -77;
	before.xid = SENDER_XID;
	assert_memory_equal(header_at(queue, kept), &before, sizeof(before));

	before = *header_at(queue, dropped);
	herald_queue_abort(queue, dropped);
	before.word = herald_word_make(dropped, HERALD_BATCH_ABORTED);
	assert_memory_equal(header_at(queue, dropped), &before, sizeof(before));
	free(queue);
}

/*
 * Guards: the segment's border, for every number of bytes left before it.  A
 * batch that fits exactly needs no filler; one that does not fit goes behind the border.
 */
static void
test_segment_border(void **state UNUSED)
{
	const uint64_t length = HEADER_SIZE + 64;

	for (uint64_t left = 0; left <= length + 16; left += HERALD_ALIGN)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition border = atomic_load(&queue->head) + queue->segment_size;
		HeraldPosition position;

		leave_in_segment(queue, left);
		assert_int_equal(atomic_load(&queue->head), border - left);
		assert_true(reserve(queue, length - HEADER_SIZE, &position));
		if (left >= length)
		{
			assert_int_equal(position, border - left);
			assert_all_zero(queue, position + length, border + 64);
		}
		else
		{
			assert_int_equal(position, border);
			assert_int_equal(atomic_load(&queue->head), border + length);
			if (left > 0)
				assert_int_equal(word_at(queue, border - left),
								 herald_word_make(border - left, HERALD_BATCH_FILLER));
			if (left > HERALD_ALIGN)
				assert_all_zero(queue, border - left + HERALD_ALIGN, border);
		}
		free(queue);
	}
}

/* Guards: the largest batch fills a segment, and begins with one. */
static void
test_whole_segment(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldPosition position;

	assert_int_equal(herald_queue_batch_max(queue) + HEADER_SIZE, queue->segment_size);
	assert_true(reserve(queue, herald_queue_batch_max(queue), &position));
	assert_int_equal(position, first);
	assert_int_equal(atomic_load(&queue->head), first + queue->segment_size);

	assert_true(reserve(queue, 24, &position));
	assert_true(reserve(queue, herald_queue_batch_max(queue), &position));
	assert_int_equal(position, first + 2 * queue->segment_size);
	assert_int_equal(word_at(queue, first + queue->segment_size + HEADER_SIZE + 24),
					 herald_word_make(first + queue->segment_size + HEADER_SIZE + 24,
									  HERALD_BATCH_FILLER));
	free(queue);
}

/* Guards: a full ring takes no batch, and refusing one changes nothing. */
static void
test_full(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldPosition position;

	for (int i = 0; i < HERALD_SEGMENTS - 1; i++)
	{
		assert_false(herald_queue_is_short(queue));
		assert_true(reserve(queue, herald_queue_batch_max(queue), &position));
	}
	leave_in_segment(queue, HEADER_SIZE + 24);
	assert_true(herald_queue_is_short(queue));

	/* Too large for the rest of the segment, and there is no segment behind it. */
	assert_false(reserve(queue, 32, &position));
	assert_int_equal(atomic_load(&queue->head), first + queue->ring_size - HEADER_SIZE - 24);
	assert_int_equal(word_at(queue, atomic_load(&queue->head)), 0);

	/* A batch that fits exactly, and then none at all. */
	assert_true(reserve(queue, 24, &position));
	assert_int_equal(atomic_load(&queue->head), atomic_load(&queue->limit));
	assert_false(reserve(queue, 0, &position));
	assert_false(reserve(queue, herald_queue_batch_max(queue), &position));
	assert_int_equal(word_at(queue, first), herald_word_make(first, HERALD_BATCH_RESERVED));
	assert_true(herald_queue_is_short(queue));
	free(queue);
}

/* Guards: recycling gives away whole segments below `needed`, zeroed, no more. */
static void
test_recycle_alignments(void **state UNUSED)
{
	static const int64_t around[] = {-64, -8, 0, 8, 16, 64};

	for (int segment = 0; segment <= HERALD_SEGMENTS; segment++)
		for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++)
		{
			HeraldQueue  *queue = log_new();
			HeraldPosition first = atomic_load(&queue->head);
			HeraldPosition needed = first + segment * queue->segment_size + around[i];
			HeraldPosition tail = needed & ~(queue->segment_size - 1);
			HeraldPosition position;

			for (HeraldPosition at = first; at < first + queue->ring_size; at += HERALD_ALIGN)
				set_word_at(queue, at, at | HERALD_BATCH_COMMITTED);
			atomic_store(&queue->head, first + queue->ring_size);
			assert_false(reserve(queue, 0, &position));

			assert_int_equal(herald_queue_recycle(queue, needed), tail > first);
			if (tail < first)
				tail = first;
			assert_int_equal(atomic_load(&queue->tail), tail);
			assert_int_equal(atomic_load(&queue->limit), tail + queue->ring_size);
			assert_all_zero(queue, first + queue->ring_size, tail + queue->ring_size);
			for (HeraldPosition at = tail; at < first + queue->ring_size; at += HERALD_ALIGN)
				assert_int_equal(word_at(queue, at), at | HERALD_BATCH_COMMITTED);
			assert_int_equal(reserve(queue, 0, &position), tail > first);

			assert_false(herald_queue_recycle(queue, needed));
			free(queue);
		}
}

/* Guards: recycling with an older position takes nothing back. */
static void
test_recycle_older(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);

	atomic_store(&queue->head, first + queue->ring_size);
	assert_true(herald_queue_recycle(queue, first + 3 * queue->segment_size));
	assert_false(herald_queue_recycle(queue, first + 2 * queue->segment_size));
	assert_int_equal(atomic_load(&queue->tail), first + 3 * queue->segment_size);
	assert_int_equal(atomic_load(&queue->limit), first + 3 * queue->segment_size + queue->ring_size);
	free(queue);
}

/* Guards: "short" is less than a segment before the limit. */
static void
test_is_short(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition limit = atomic_load(&queue->limit);

	atomic_store(&queue->head, limit - queue->segment_size);
	assert_false(herald_queue_is_short(queue));
	atomic_store(&queue->head, limit - queue->segment_size + HERALD_ALIGN);
	assert_true(herald_queue_is_short(queue));
	atomic_store(&queue->head, limit);
	assert_true(herald_queue_is_short(queue));
	free(queue);
}

/* Guards: the oldest segment is the one that senders get next, not the one at the tail. */
static void
test_oldest_end(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);

	assert_int_equal(herald_queue_oldest_end(queue), first + queue->segment_size);
	atomic_store(&queue->tail, first + queue->segment_size);	/* it is being recycled */
	assert_int_equal(herald_queue_oldest_end(queue), first + queue->segment_size);
	assert_true(herald_queue_recycle(queue, first + 3 * queue->segment_size));
	assert_int_equal(herald_queue_oldest_end(queue), first + 4 * queue->segment_size);
	free(queue);
}

/*
 * Fill a batch with words that would look, at the same place one lap later,
 * like a committed header, an aborted one, or a filler.
 */
static HeraldPosition
send_crafted(HeraldQueue *queue, uint64_t entries_length)
{
	HeraldPosition position;
	uint64_t   *words = malloc(entries_length + HERALD_ALIGN);

	if (!reserve(queue, entries_length, &position))
	{
		free(words);
		return 0;
	}
	for (uint64_t i = 0; i < entries_length / HERALD_ALIGN; i++)
	{
		HeraldPosition next_lap = position + HEADER_SIZE + i * HERALD_ALIGN + queue->ring_size;

		words[i] = herald_word_make(next_lap, HERALD_BATCH_COMMITTED + i % 3);
	}
	herald_queue_fill(queue, position, words, entries_length);
	herald_queue_commit(queue, position, 0, SENDER_XID);
	free(words);
	return position;
}

/*
 * Guards: many laps of crafted payloads, with batches that begin at different
 * places.  After each the head is moved as by a sender that is suspended before
 * it writes its header: nothing may be dispatched there.
 */
static void
test_wrap_with_crafted_payloads(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	unsigned	seed = 1;

	while (atomic_load(&queue->head) < first + 40 * queue->ring_size)
	{
		uint64_t	length = (uint64_t) (rand_r(&seed) % 1500) * HERALD_ALIGN;
		HeraldPosition dispatched;
		HeraldPosition suspended;
		Recorder	recorder = {0};

		while (send_crafted(queue, length) == 0)
			assert_true(herald_queue_recycle(queue, atomic_load(&queue->settled)));
		assert_int_equal(dispatch_all(queue), 1);

		dispatched = atomic_load(&queue->dispatched);
		assert_int_equal(dispatched, atomic_load(&queue->head));
		assert_all_zero(queue, dispatched, atomic_load(&queue->limit));
		suspended = herald_queue_next_segment(queue, dispatched);
		if (suspended > atomic_load(&queue->limit))
			continue;
		atomic_store(&queue->head, suspended);
		assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DONE);
		assert_int_equal(atomic_load(&queue->dispatched), dispatched);
		atomic_store(&queue->head, dispatched);
	}
	free(queue);
}

/* Guards: no arithmetic depends on positions being small. */
static void
test_far_positions(void **state UNUSED)
{
	HeraldQueue  *queue = log_new_at(UINT64_C(1) << 63);
	HeraldPosition position;

	for (int i = 0; i < 3 * HERALD_SEGMENTS; i++)
	{
		while (!reserve(queue, herald_queue_batch_max(queue) - 64, &position))
			assert_true(herald_queue_recycle(queue, atomic_load(&queue->settled)));
		herald_queue_commit(queue, position, 0, SENDER_XID);
		assert_int_equal(dispatch_all(queue), 1);
	}
	assert_true(atomic_load(&queue->tail) > UINT64_C(1) << 63);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring_size),
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_reserve_and_fill),
		cmocka_unit_test(test_finish),
		cmocka_unit_test(test_segment_border),
		cmocka_unit_test(test_whole_segment),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_recycle_alignments),
		cmocka_unit_test(test_recycle_older),
		cmocka_unit_test(test_is_short),
		cmocka_unit_test(test_oldest_end),
		cmocka_unit_test(test_wrap_with_crafted_payloads),
		cmocka_unit_test(test_far_positions),
	};

	return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
