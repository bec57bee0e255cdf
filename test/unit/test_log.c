/*-------------------------------------------------------------------------
 *
 * test_log.c
 *	  Unit tests of log.c: reserving, finishing, the ring's wrap, recycling.
 *
 * Guards: a batch is whole, inside one segment, and below the limit; bytes of
 * an older lap are never taken for a header [Q1]; recycling gives away only
 * what is not needed.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

static const HeraldBatch some_batch = {
	.count = 3,.database = DATABASE,.sender_pid = SENDER_PID
};

static bool
reserve(HeraldLog *log, uint64_t entries_length, HeraldPosition *position)
{
	return herald_log_reserve(log, &some_batch, entries_length, position);
}

static void
assert_all_zero(HeraldLog *log, HeraldPosition from, HeraldPosition to)
{
	for (; from < to; from += HERALD_ALIGN)
		if (word_at(log, from) != 0)
			fail_msg("old bytes at %llu", (unsigned long long) from);
}

/* Guards: any wish becomes a power of two that is not larger, with a minimum. */
static void
test_ring_size(void **state UNUSED)
{
	assert_int_equal(herald_log_ring_size(0), HERALD_RING_MIN);
	assert_int_equal(herald_log_ring_size(HERALD_RING_MIN * 2 - 1), HERALD_RING_MIN);
	assert_int_equal(herald_log_ring_size(HERALD_RING_MIN * 2), HERALD_RING_MIN * 2);
	assert_int_equal(herald_log_ring_size(16 << 20), 16 << 20);
	assert_int_equal(herald_log_ring_size((16 << 20) + 1), 16 << 20);
	assert_int_equal(herald_log_ring_size(UINT64_C(8) << 30), UINT64_C(8) << 30);
}

/* Guards: the first position is above zero, the ring zeroed, the limit a lap on. */
static void
test_init(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition head = atomic_load(&log->head);

	assert_true(head > 0);
	assert_int_equal(head % log->ring_size, 0);
	assert_int_equal(atomic_load(&log->tail), head);
	assert_int_equal(atomic_load(&log->limit), head + log->ring_size);
	assert_int_equal(atomic_load(&log->dispatched), head);
	assert_int_equal(atomic_load(&log->settled), head);
	assert_int_equal(log->segment_size * HERALD_SEGMENTS, log->ring_size);
	assert_false(herald_log_is_short(log));
	assert_all_zero(log, head, head + log->ring_size);
	free(log);
}

/* Guards: what a reservation leaves in the ring, and what filling adds. */
static void
test_reserve_and_fill(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition first = atomic_load(&log->head);
	HeraldPosition position;
	HeraldBatchHeader *header;
	uint64_t	entries[4] = {1, 2, 3, UINT64_MAX};

	assert_true(reserve(log, sizeof(entries), &position));
	assert_int_equal(position, first);
	assert_int_equal(atomic_load(&log->head), first + HEADER_SIZE + sizeof(entries));
	header = header_at(log, position);
	assert_int_equal(header->word, herald_word_make(position, HERALD_BATCH_RESERVED));
	assert_int_equal(header->length, HEADER_SIZE + sizeof(entries));
	assert_int_equal(header->count, 3);
	assert_int_equal(header->database, DATABASE);
	assert_int_equal(header->sender_pid, SENDER_PID);
	assert_int_equal(header->commit_time, 0);
	assert_all_zero(log, position + HEADER_SIZE, position + header->length);

	herald_log_fill(log, position, entries, sizeof(entries));
	assert_memory_equal(header + 1, entries, sizeof(entries));
	assert_int_equal(header->word, herald_word_make(position, HERALD_BATCH_RESERVED));
	assert_all_zero(log, position + header->length, first + log->ring_size);
	free(log);
}

/* Guards: finishing changes the state, and a commit the time; nothing else. */
static void
test_finish(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition kept;
	HeraldPosition dropped;
	HeraldBatchHeader before;

	assert_true(reserve(log, 64, &kept));
	assert_true(reserve(log, 64, &dropped));
	before = *header_at(log, kept);
	herald_log_commit(log, kept, INT64_C(-77));
	before.word = herald_word_make(kept, HERALD_BATCH_COMMITTED);
	before.commit_time = -77;
	assert_memory_equal(header_at(log, kept), &before, sizeof(before));

	before = *header_at(log, dropped);
	herald_log_abort(log, dropped);
	before.word = herald_word_make(dropped, HERALD_BATCH_ABORTED);
	assert_memory_equal(header_at(log, dropped), &before, sizeof(before));
	free(log);
}

/*
 * Guards: the segment's border, for every number of bytes left before it.  A
 * batch that fits exactly needs no filler; one that does not goes behind it.
 */
static void
test_segment_border(void **state UNUSED)
{
	const uint64_t length = HEADER_SIZE + 64;

	for (uint64_t left = 0; left <= length + 16; left += HERALD_ALIGN)
	{
		HeraldLog  *log = log_new();
		HeraldPosition border = atomic_load(&log->head) + log->segment_size;
		HeraldPosition position;

		leave_in_segment(log, left);
		assert_int_equal(atomic_load(&log->head), border - left);
		assert_true(reserve(log, length - HEADER_SIZE, &position));
		if (left >= length)
		{
			assert_int_equal(position, border - left);
			assert_all_zero(log, position + length, border + 64);
		}
		else
		{
			assert_int_equal(position, border);
			assert_int_equal(atomic_load(&log->head), border + length);
			if (left > 0)
				assert_int_equal(word_at(log, border - left),
								 herald_word_make(border - left, HERALD_BATCH_FILLER));
			if (left > HERALD_ALIGN)
				assert_all_zero(log, border - left + HERALD_ALIGN, border);
		}
		free(log);
	}
}

/* Guards: the largest batch fills a segment, and begins with one. */
static void
test_whole_segment(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition first = atomic_load(&log->head);
	HeraldPosition position;

	assert_int_equal(herald_log_batch_max(log) + HEADER_SIZE, log->segment_size);
	assert_true(reserve(log, herald_log_batch_max(log), &position));
	assert_int_equal(position, first);
	assert_int_equal(atomic_load(&log->head), first + log->segment_size);

	assert_true(reserve(log, 24, &position));
	assert_true(reserve(log, herald_log_batch_max(log), &position));
	assert_int_equal(position, first + 2 * log->segment_size);
	assert_int_equal(word_at(log, first + log->segment_size + HEADER_SIZE + 24),
					 herald_word_make(first + log->segment_size + HEADER_SIZE + 24,
									  HERALD_BATCH_FILLER));
	free(log);
}

/* Guards: a full ring takes nothing, and changes nothing in saying so. */
static void
test_full(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition first = atomic_load(&log->head);
	HeraldPosition position;

	for (int i = 0; i < HERALD_SEGMENTS - 1; i++)
	{
		assert_false(herald_log_is_short(log));
		assert_true(reserve(log, herald_log_batch_max(log), &position));
	}
	leave_in_segment(log, HEADER_SIZE + 24);
	assert_true(herald_log_is_short(log));

	/* Too large for what is left, and no segment behind it. */
	assert_false(reserve(log, 32, &position));
	assert_int_equal(atomic_load(&log->head), first + log->ring_size - HEADER_SIZE - 24);
	assert_int_equal(word_at(log, atomic_load(&log->head)), 0);

	/* Exactly what is left, and then nothing at all. */
	assert_true(reserve(log, 24, &position));
	assert_int_equal(atomic_load(&log->head), atomic_load(&log->limit));
	assert_false(reserve(log, 0, &position));
	assert_false(reserve(log, herald_log_batch_max(log), &position));
	assert_int_equal(word_at(log, first), herald_word_make(first, HERALD_BATCH_RESERVED));
	assert_true(herald_log_is_short(log));
	free(log);
}

/* Guards: recycling gives away whole segments below `needed`, zeroed, no more. */
static void
test_recycle_alignments(void **state UNUSED)
{
	static const int64_t around[] = {-64, -8, 0, 8, 16, 64};

	for (int segment = 0; segment <= HERALD_SEGMENTS; segment++)
		for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++)
		{
			HeraldLog  *log = log_new();
			HeraldPosition first = atomic_load(&log->head);
			HeraldPosition needed = first + segment * log->segment_size + around[i];
			HeraldPosition tail = needed & ~(log->segment_size - 1);
			HeraldPosition position;

			for (HeraldPosition at = first; at < first + log->ring_size; at += HERALD_ALIGN)
				set_word_at(log, at, at | HERALD_BATCH_COMMITTED);
			atomic_store(&log->head, first + log->ring_size);
			assert_false(reserve(log, 0, &position));

			assert_int_equal(herald_log_recycle(log, needed), tail > first);
			if (tail < first)
				tail = first;
			assert_int_equal(atomic_load(&log->tail), tail);
			assert_int_equal(atomic_load(&log->limit), tail + log->ring_size);
			assert_all_zero(log, first + log->ring_size, tail + log->ring_size);
			for (HeraldPosition at = tail; at < first + log->ring_size; at += HERALD_ALIGN)
				assert_int_equal(word_at(log, at), at | HERALD_BATCH_COMMITTED);
			assert_int_equal(reserve(log, 0, &position), tail > first);

			assert_false(herald_log_recycle(log, needed));
			assert_int_equal(atomic_load(&log->recycling), 0);
			free(log);
		}
}

/* Guards: one recycler at a time, and an older opinion takes nothing back. */
static void
test_recycle_alone(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition first = atomic_load(&log->head);

	atomic_store(&log->head, first + log->ring_size);
	atomic_store(&log->recycling, 1);
	assert_false(herald_log_recycle(log, first + log->segment_size));
	assert_int_equal(atomic_load(&log->tail), first);
	assert_int_equal(atomic_load(&log->recycling), 1);
	atomic_store(&log->recycling, 0);

	assert_true(herald_log_recycle(log, first + 3 * log->segment_size));
	assert_false(herald_log_recycle(log, first + 2 * log->segment_size));
	assert_int_equal(atomic_load(&log->tail), first + 3 * log->segment_size);
	assert_int_equal(atomic_load(&log->limit), first + 3 * log->segment_size + log->ring_size);
	free(log);
}

/* Guards: "short" is less than a segment before the limit. */
static void
test_is_short(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition limit = atomic_load(&log->limit);

	atomic_store(&log->head, limit - log->segment_size);
	assert_false(herald_log_is_short(log));
	atomic_store(&log->head, limit - log->segment_size + HERALD_ALIGN);
	assert_true(herald_log_is_short(log));
	atomic_store(&log->head, limit);
	assert_true(herald_log_is_short(log));
	free(log);
}

/*
 * Fill a batch with words that would pass, at their very place one lap later,
 * for a committed header, an aborted one, or a filler.
 */
static HeraldPosition
send_crafted(HeraldLog *log, uint64_t entries_length)
{
	HeraldPosition position;
	uint64_t   *words = malloc(entries_length + HERALD_ALIGN);

	if (!reserve(log, entries_length, &position))
	{
		free(words);
		return 0;
	}
	for (uint64_t i = 0; i < entries_length / HERALD_ALIGN; i++)
	{
		HeraldPosition next_lap = position + HEADER_SIZE + i * HERALD_ALIGN + log->ring_size;

		words[i] = herald_word_make(next_lap, HERALD_BATCH_COMMITTED + i % 3);
	}
	herald_log_fill(log, position, words, entries_length);
	herald_log_commit(log, position, 0);
	free(words);
	return position;
}

/*
 * Guards: many laps of crafted payloads, with batches that begin at ever other
 * places.  After each a head is moved as by a sender that was suspended before
 * it wrote its header: nothing may be dispatched there.
 */
static void
test_wrap_with_crafted_payloads(void **state UNUSED)
{
	HeraldLog  *log = log_new();
	HeraldPosition first = atomic_load(&log->head);
	unsigned	seed = 1;

	while (atomic_load(&log->head) < first + 40 * log->ring_size)
	{
		uint64_t	length = (uint64_t) (rand_r(&seed) % 1500) * HERALD_ALIGN;
		HeraldPosition dispatched;
		HeraldPosition suspended;
		Recorder	recorder = {0};

		while (send_crafted(log, length) == 0)
			assert_true(herald_log_recycle(log, atomic_load(&log->settled)));
		assert_int_equal(dispatch_all(log), 1);

		dispatched = atomic_load(&log->dispatched);
		assert_int_equal(dispatched, atomic_load(&log->head));
		assert_all_zero(log, dispatched, atomic_load(&log->limit));
		suspended = herald_log_next_segment(log, dispatched);
		if (suspended > atomic_load(&log->limit))
			continue;
		atomic_store(&log->head, suspended);
		assert_int_equal(dispatch(log, BUDGET_ALL, &recorder), HERALD_DISPATCH_DONE);
		assert_int_equal(atomic_load(&log->dispatched), dispatched);
		atomic_store(&log->head, dispatched);
	}
	free(log);
}

/* Guards: no arithmetic depends on positions being small. */
static void
test_far_positions(void **state UNUSED)
{
	HeraldLog  *log = log_new_at(UINT64_C(1) << 63);
	HeraldPosition position;

	for (int i = 0; i < 3 * HERALD_SEGMENTS; i++)
	{
		while (!reserve(log, herald_log_batch_max(log) - 64, &position))
			assert_true(herald_log_recycle(log, atomic_load(&log->settled)));
		herald_log_commit(log, position, 0);
		assert_int_equal(dispatch_all(log), 1);
	}
	assert_true(atomic_load(&log->tail) > UINT64_C(1) << 63);
	free(log);
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
		cmocka_unit_test(test_recycle_alone),
		cmocka_unit_test(test_is_short),
		cmocka_unit_test(test_wrap_with_crafted_payloads),
		cmocka_unit_test(test_far_positions),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
