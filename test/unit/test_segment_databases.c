/*-------------------------------------------------------------------------
 *
 * test_segment_databases.c
 *	  Unit tests of segment_databases.c, and of readers that pass over segments.
 *
 * Guards: a reader copies no byte of a segment that has nothing of its database,
 * and misses nothing of one that has.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "segment_databases.h"

#define BATCH_LENGTH	4096
#define BUFFER			8192

static HeraldReader
reader_new(HeraldQueue *queue, HeraldPosition from)
{
	HeraldReader reader;

	herald_reader_begin(&reader, queue, DATABASE, from, atomic_load(&queue->dispatched),
						memory_new(BUFFER), BUFFER);
	return reader;
}

/* Batches of another database, up to the end of this segment. */
static void
fill_with_others(HeraldQueue *queue)
{
	HeraldPosition head;
	HeraldPosition border = herald_queue_next_segment(queue, atomic_load(&queue->head));

	while ((head = atomic_load(&queue->head)) < border)
	{
		uint64_t	length = border - head < 2 * BATCH_LENGTH ? border - head : BATCH_LENGTH;
		HeraldPosition position = batch_reserve_length(queue, length, 'x');

		header_at(queue, position)->database = OTHER_DATABASE;
		herald_queue_commit(queue, position, 0, SENDER_XID);
	}
}

/* Guards: a database is known to be absent only from a segment that has been noted. */
static void
test_noted(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldPosition second = first + queue->segment_size;

	assert_true(herald_segment_may_have(queue, first, DATABASE));
	herald_segment_note(queue, first, DATABASE);
	assert_true(herald_segment_may_have(queue, first, DATABASE));
	assert_false(herald_segment_may_have(queue, second - HERALD_ALIGN, OTHER_DATABASE));
	assert_true(herald_segment_may_have(queue, second, OTHER_DATABASE));

	herald_segment_note(queue, first + 64, OTHER_DATABASE);
	assert_true(herald_segment_may_have(queue, first, DATABASE));
	assert_true(herald_segment_may_have(queue, first, OTHER_DATABASE));

	herald_segment_note_empty(queue, second);
	assert_false(herald_segment_may_have(queue, second, DATABASE));
	free(queue);
}

/* Guards: each database has a bit; databases created one after the other have different bits. */
static void
test_each_database(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition at = atomic_load(&queue->head);
	int			others = 0;

	for (uint32_t database = 1; database < 100000; database = database * 5 / 4 + 1, at += queue->segment_size)
	{
		herald_segment_note(queue, at, database);
		assert_true(herald_segment_may_have(queue, at, database));
		for (uint32_t other = database + 1; other <= database + 4; other++)
		{
			if (herald_segment_may_have(queue, at, other))
				others++;
		}
	}
	assert_int_equal(others, 0);
	free(queue);
}

/* Guards: a word that a later segment took says nothing about the earlier one. */
static void
test_taken_over(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition early = atomic_load(&queue->head);
	HeraldPosition late = early + HERALD_SEGMENTS_NOTED * queue->segment_size;

	herald_segment_note(queue, early, DATABASE);
	herald_segment_note(queue, late, OTHER_DATABASE);
	assert_true(herald_segment_may_have(queue, early, DATABASE));
	assert_true(herald_segment_may_have(queue, early, OTHER_DATABASE + 1));
	assert_true(herald_segment_may_have(queue, late, OTHER_DATABASE));
	assert_false(herald_segment_may_have(queue, late, DATABASE));
	free(queue);
}

/* Guards: batches are found before and between segments of others, which are not copied. */
static void
test_passed_over(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;
	HeraldMessage message;

	batch_send(queue, "before");
	fill_with_others(queue);
	fill_with_others(queue);
	fill_with_others(queue);
	batch_send(queue, "between");
	fill_with_others(queue);
	fill_with_others(queue);
	dispatch_all(queue);

	reader = reader_new(queue, first);
	assert_next(&reader, "before");
	assert_next(&reader, "between");
	assert_int_equal(read_next(&reader, &message), HERALD_READ_END);
	assert_int_equal(reader.checkpoint, atomic_load(&queue->dispatched));
	assert_true(reader.bytes_read <= 2 * (queue->segment_size + BUFFER));
	free(reader.buffer);
	free(queue);
}

/* Guards: a reader at the end of batches of others goes on when there is something for it. */
static void
test_extended(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldReader reader;
	HeraldMessage message;

	herald_queue_commit(queue, batch_reserve(queue, OTHER_DATABASE, "c", "elsewhere"), 0, SENDER_XID);
	herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	dispatch_all(queue);
	reader = reader_new(queue, queue->ring_size);
	assert_int_equal(herald_reader_next(&reader, &message), HERALD_READ_END);
	assert_int_equal(reader.bytes_read, 0);
	assert_int_equal(reader.checkpoint, atomic_load(&queue->dispatched));

	batch_send(queue, "mine");
	dispatch_all(queue);
	herald_reader_extend(&reader, atomic_load(&queue->dispatched));
	assert_next(&reader, "mine");
	assert_int_equal(read_next(&reader, &message), HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

/* Guards: a reader that misses nothing is not lapped: segments of others may be gone. */
static void
test_gone(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;
	HeraldMessage message;

	fill_with_others(queue);
	batch_send(queue, "mine");
	dispatch_all(queue);
	assert_true(herald_queue_recycle(queue, first + queue->segment_size));
	reader = reader_new(queue, first);
	assert_next(&reader, "mine");
	assert_int_equal(read_next(&reader, &message), HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_noted),
		cmocka_unit_test(test_each_database),
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_passed_over),
		cmocka_unit_test(test_extended),
		cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests_name("segment databases", tests, NULL, NULL);
}
