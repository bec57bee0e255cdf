/*-------------------------------------------------------------------------
 *
 * test_queue_reader.c
 *	  Unit tests of queue_reader.c: copy, validate, then use.
 *
 * Guards: a reader finds every message, with chunks of any size; it notices when
 * its bytes were recycled; and damaged bytes never lead it out of its
 * buffer or the ring.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#define SMALL_BUFFER	64

/* A reader over all that is dispatched, with a buffer of exactly this size. */
static HeraldReader
reader_new(HeraldQueue *queue, HeraldPosition from, size_t buffer_size)
{
	HeraldReader reader;

	herald_reader_begin(&reader, queue, DATABASE, from, atomic_load(&queue->dispatched),
						memory_new(buffer_size), buffer_size);
	return reader;
}

static void
assert_result(HeraldReader *reader, HeraldReadResult expected)
{
	HeraldMessage message;

	assert_int_equal(read_next(reader, &message), expected);
}

/* Guards: a reader with nothing to read is at its end, and copies nothing. */
static void
test_empty(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldReader reader = reader_new(queue, atomic_load(&queue->head), SMALL_BUFFER);
	HeraldMessage message;

	assert_int_equal(herald_reader_next(&reader, &message), HERALD_READ_END);
	assert_int_equal(herald_reader_next(&reader, &message), HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

/* Guards: messages come in order, with their batch's data; the end can be moved on. */
static void
test_messages_and_extend(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "one");
	HeraldPosition second = batch_send(queue, "two");
	HeraldReader reader;
	HeraldMessage message;

	dispatch_all(queue);
	reader = reader_new(queue, first, 4096);
	assert_int_equal(read_next(&reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(message.batch, first);
	assert_int_equal(message.sender.role, SENDER_ROLE);
	assert_true(message.sender.xid == SENDER_XID);
	assert_int_equal(message.commit_time, 1234);
	assert_string_equal(herald_entry_channel(message.entry), "channel");
	assert_string_equal(herald_entry_payload(message.entry), "one");
	assert_int_equal(reader.checkpoint, first);
	assert_int_equal(read_next(&reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(message.batch, second);
	assert_int_equal(reader.checkpoint, second);
	assert_result(&reader, HERALD_READ_END);
	assert_int_equal(reader.checkpoint, atomic_load(&queue->dispatched));

	batch_send(queue, "three");
	assert_result(&reader, HERALD_READ_END);
	dispatch_all(queue);
	herald_reader_extend(&reader, atomic_load(&queue->dispatched));
	assert_next(&reader, "three");
	assert_result(&reader, HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

/* Guards: batches of other databases and aborted ones are passed over whole. */
static void
test_skipped_batches(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;

	for (int i = 0; i < 20; i++)
	{
		herald_queue_commit(queue, batch_reserve(queue, OTHER_DATABASE, "c", "elsewhere"), 0, SENDER_XID);
		herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
		batch_send(queue, "mine");
	}
	herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	dispatch_all(queue);

	reader = reader_new(queue, first, SMALL_BUFFER);
	for (int i = 0; i < 20; i++)
		assert_next(&reader, "mine");
	assert_result(&reader, HERALD_READ_END);
	assert_int_equal(reader.position, atomic_load(&queue->dispatched));
	free(reader.buffer);
	free(queue);
}

/*
 * Guards: chunks of every size, so that they end in the middle of a header, an
 * entry's head and an entry, and at fillers and segment borders.
 */
static void
test_chunk_sizes(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->head);
	char		payload[512];
	int			sent = 0;

	while (atomic_load(&queue->head) < first + 3 * queue->segment_size)
	{
		char		bytes[2048] __attribute__((aligned(8)));
		uint64_t	length = 0;

		for (int i = 0; i < 1 + sent % 3; i++)
		{
			snprintf(payload, sizeof(payload), "%d %0*d", sent, 1 + sent * 7 % 300, i);
			length += entry_write(bytes + length, "c", payload, strlen(payload));
		}
		herald_queue_commit(queue, batch_reserve_bytes(queue, DATABASE, bytes, length), 0, SENDER_XID);
		sent++;
	}
	dispatch_all(queue);

	for (size_t size = SMALL_BUFFER; size <= 2048; size += size < 512 ? 8 : 248)
	{
		HeraldReader reader = reader_new(queue, first, size);

		for (int batch = 0; batch < sent; batch++)
			for (int i = 0; i < 1 + batch % 3; i++)
			{
				snprintf(payload, sizeof(payload), "%d %0*d", batch, 1 + batch * 7 % 300, i);
				assert_next(&reader, payload);
			}
		assert_result(&reader, HERALD_READ_END);
		free(reader.buffer);
	}
	free(queue);
}

/* Guards: the reader asks for room for an entry larger than the buffer, and then reads it. */
static void
test_room(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition big;
	HeraldReader reader;
	HeraldMessage message;
	uint64_t	entry_length = 1000 - HEADER_SIZE;

	batch_send(queue, "small");
	big = batch_reserve_length(queue, 1000, 'y');
	herald_queue_commit(queue, big, 0, SENDER_XID);
	batch_send(queue, "last");
	dispatch_all(queue);

	reader = reader_new(queue, atomic_load(&queue->tail), 128);
	assert_next(&reader, "small");
	assert_result(&reader, HERALD_READ_ROOM);
	assert_int_equal(reader.room_needed, entry_length);
	assert_result(&reader, HERALD_READ_ROOM);
	assert_int_equal(reader.position, big + HEADER_SIZE);

	free(reader.buffer);
	herald_reader_set_buffer(&reader, memory_new(entry_length), entry_length);
	assert_int_equal(read_next(&reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(message.entry->length, entry_length);
	assert_int_equal(herald_entry_payload(message.entry)[0], 'y');
	assert_next(&reader, "last");
	assert_result(&reader, HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

/* Guards: the ring's end is passed like any border, with and without a filler. */
static void
test_across_laps(void **state UNUSED)
{
	for (uint64_t left = 0; left <= 64; left += HERALD_ALIGN)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition from;
		HeraldReader reader;

		for (int i = 0; i < HERALD_SEGMENTS; i++)
		{
			from = batch_send(queue, "before");
			leave_in_segment(queue, left);
		}
		dispatch_all(queue);
		assert_true(herald_queue_recycle(queue, from));
		batch_send(queue, "behind");
		dispatch_all(queue);

		reader = reader_new(queue, from, SMALL_BUFFER);
		assert_next(&reader, "before");
		assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_MESSAGE);
		assert_next(&reader, "behind");
		assert_result(&reader, HERALD_READ_END);
		free(reader.buffer);
		free(queue);
	}
}

/* Guards: a reader whose position was recycled reports it, and reads nothing. */
static void
test_lapped(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "gone");
	HeraldPosition second;
	HeraldReader reader;
	HeraldReader copied;

	leave_in_segment(queue, 0);
	second = batch_send(queue, "kept");
	dispatch_all(queue);
	reader = reader_new(queue, first, SMALL_BUFFER);
	copied = reader_new(queue, first, 4096);
	assert_next(&copied, "gone");

	assert_true(herald_queue_recycle(queue, second));
	assert_result(&reader, HERALD_READ_LAPPED);
	assert_result(&reader, HERALD_READ_LAPPED);

	/* The same for the other reader, as soon as it needs its next chunk. */
	assert_int_equal(read_growing(&copied, &(HeraldMessage) {0}), HERALD_READ_LAPPED);
	free(reader.buffer);
	reader = reader_new(queue, second, SMALL_BUFFER);
	assert_next(&reader, "kept");
	free(reader.buffer);
	free(copied.buffer);
	free(queue);
}

/*
 * Guards: bytes that are recycled during the copy.  A recycler moves the tail
 * first; from then on a copy of bytes below it is rejected, though they have
 * not changed yet.
 */
static void
test_lapped_during_copy(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "going");
	char	   *to = memory_new(SMALL_BUFFER);

	assert_true(herald_queue_copy(queue, first, 48, to));
	atomic_store(&queue->tail, first + HERALD_ALIGN);
	assert_false(herald_queue_copy(queue, first, 48, to));
	assert_true(herald_queue_copy(queue, first + HERALD_ALIGN, 48, to));
	atomic_store(&queue->tail, first + queue->segment_size);
	assert_false(herald_queue_copy(queue, first, 48, to));
	free(to);
	free(queue);
}

/* Guards: any word but that of a finished batch at this position is reported as damage. */
static void
test_damaged_word(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "one");
	const uint64_t words[] = {
		0, 1, 2, 3, 4, UINT64_MAX,
		herald_word_make(first, HERALD_BATCH_CLEAR),
		herald_word_make(first, HERALD_BATCH_RESERVED),
		herald_word_make(first, 5), herald_word_make(first, 6), herald_word_make(first, 7),
		herald_word_make(first - queue->ring_size, HERALD_BATCH_COMMITTED),
		herald_word_make(first + queue->ring_size, HERALD_BATCH_COMMITTED),
		herald_word_make(first + 8, HERALD_BATCH_ABORTED),
		herald_word_make(first + queue->ring_size, HERALD_BATCH_FILLER),
	};

	dispatch_all(queue);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
	{
		HeraldReader reader = reader_new(queue, first, SMALL_BUFFER);

		set_word_at(queue, first, words[i]);
		assert_result(&reader, HERALD_READ_DAMAGED);
		assert_int_equal(reader.position, first);
		free(reader.buffer);
	}
	free(queue);
}

static const uint32_t bad_lengths[] = {
	0, 1, 7, 8, 24, 31, 33, 36, 63, 65536 + 8, 1 << 20, INT32_MAX,
	(uint32_t) INT32_MAX + 1, UINT32_MAX - 7, UINT32_MAX
};

/* Guards: a batch's length that is wrong in any way is noticed, for every kind of batch. */
static void
test_damaged_batch_length(void **state UNUSED)
{
	const size_t bad = sizeof(bad_lengths) / sizeof(bad_lengths[0]);

	for (int kind = 0; kind < 3; kind++)
		for (size_t i = 0; i <= bad; i++)
		{
			HeraldQueue  *queue = log_new();
			HeraldPosition first = batch_reserve(queue, kind == 1 ? OTHER_DATABASE : DATABASE,
												 "c", "one");
			HeraldReader reader;

			if (kind == 2)
				herald_queue_abort(queue, first);
			else
				herald_queue_commit(queue, first, 0, SENDER_XID);
			batch_send(queue, "so that the segment is read");
			dispatch_all(queue);
			/* The last one ends just behind the batch, at no valid position. */
			header_at(queue, first)->length =
				i < bad ? bad_lengths[i] : header_at(queue, first)->length + 1;
			reader = reader_new(queue, first, SMALL_BUFFER);
			assert_result(&reader, HERALD_READ_DAMAGED);
			free(reader.buffer);
			free(queue);
		}
}

/*
 * Guards: a batch's length that is well formed but too large or too small for its
 * entries is noticed before any entry that does not belong to the batch is used.
 */
static void
test_batch_length_and_entries_differ(void **state UNUSED)
{
	for (uint32_t length = HEADER_SIZE; length <= 4096; length += HERALD_ALIGN)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition first = batch_send(queue, "one");
		uint32_t	good = header_at(queue, first)->length;
		HeraldMessage message;
		HeraldReader reader;
		HeraldReadResult result;

		dispatch_all(queue);
		header_at(queue, first)->length = length;
		reader = reader_new(queue, first, SMALL_BUFFER);
		result = read_growing(&reader, &message);
		if (length == good)
			assert_int_equal(result, HERALD_READ_MESSAGE);
		else
			assert_int_equal(result, HERALD_READ_DAMAGED);
		free(reader.buffer);
		free(queue);
	}
}

/* Guards: a header that would reach over the segment's border is reported as damage. */
static void
test_header_at_border(void **state UNUSED)
{
	for (uint64_t left = 8; left < HEADER_SIZE; left += 8)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition at;
		HeraldReader reader;

		leave_in_segment(queue, left);
		at = atomic_load(&queue->head);
		batch_send(queue, "next");
		dispatch_all(queue);
		set_word_at(queue, at, herald_word_make(at, HERALD_BATCH_COMMITTED));
		reader = reader_new(queue, at, SMALL_BUFFER);
		assert_result(&reader, HERALD_READ_DAMAGED);
		free(reader.buffer);
		free(queue);
	}
}

/* Guards: any wrong length or kind in an entry is noticed.  (An entry has no padding.) */
static void
test_damaged_entry(void **state UNUSED)
{
	for (int field = 0; field < 4; field++)
		for (size_t i = 0; i < sizeof(bad_lengths) / sizeof(bad_lengths[0]); i++)
		{
			HeraldQueue  *queue = log_new();
			HeraldPosition first = batch_send(queue, "payload of some real length");
			HeraldEntry *entry = entry_at(queue, first + HEADER_SIZE);
			HeraldReader reader;

			/* 7 is the right length of the channel, and 1 a valid kind. */
			if (field == 0)
				entry->length = bad_lengths[i];
			else if (field == 1)
				entry->body_length = bad_lengths[i];
			else if (field == 2)
				entry->channel_length = (uint16_t) (bad_lengths[i] == 7 ? 6 : bad_lengths[i]);
			else
				entry->kind = (uint16_t) (bad_lengths[i] == 1 ? 5 : bad_lengths[i]);
			batch_send(queue, "behind");
			dispatch_all(queue);
			reader = reader_new(queue, first, 512);
			assert_result(&reader, HERALD_READ_DAMAGED);
			assert_int_equal(reader.position, first + HEADER_SIZE);
			free(reader.buffer);
			free(queue);
		}
}

/* Guards: any single word of a small queue overwritten causes no wild read or endless loop. */
static void
test_any_word_damaged(void **state UNUSED)
{
	static const uint64_t poisons[] = {
		0, 1, 8, 0x28, UINT64_MAX, UINT64_C(0xFFFFFFF8FFFFFFF8), UINT64_C(0x0000FFF800000018)
	};
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "one");
	HeraldPosition end;

	herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	leave_in_segment(queue, 16);
	batch_send(queue, "two");
	dispatch_all(queue);
	end = atomic_load(&queue->dispatched);

	for (HeraldPosition at = first; at < end; at += HERALD_ALIGN)
	{
		uint64_t	good = word_at(queue, at);

		if (at == first + 1024)
			at = herald_queue_next_segment(queue, first) - 64;
		for (size_t i = 0; i < sizeof(poisons) / sizeof(poisons[0]); i++)
		{
			HeraldReader reader = reader_new(queue, first, SMALL_BUFFER);
			HeraldReadResult result;

			good = word_at(queue, at);
			set_word_at(queue, at, poisons[i]);
			do
				result = read_growing(&reader, &(HeraldMessage) {0});
			while (result == HERALD_READ_MESSAGE);
			assert_true(result == HERALD_READ_END || result == HERALD_READ_DAMAGED);
			set_word_at(queue, at, good);
			free(reader.buffer);
		}
	}
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_messages_and_extend),
		cmocka_unit_test(test_skipped_batches),
		cmocka_unit_test(test_chunk_sizes),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_across_laps),
		cmocka_unit_test(test_lapped),
		cmocka_unit_test(test_lapped_during_copy),
		cmocka_unit_test(test_damaged_word),
		cmocka_unit_test(test_damaged_batch_length),
		cmocka_unit_test(test_batch_length_and_entries_differ),
		cmocka_unit_test(test_header_at_border),
		cmocka_unit_test(test_damaged_entry),
		cmocka_unit_test(test_any_word_damaged),
	};

	return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
