/*-------------------------------------------------------------------------
 *
 * test_queue_reader_spilled.c
 *	  Unit tests of queue_reader.c: segments no longer in the ring, and skipping.
 *
 * Guards: a reader goes from saved segments into memory without a gap, with any
 * chunk size and wherever the border is when it gets there; it notices when
 * bytes are gone; and after a skip it goes on with the next message.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include <limits.h>

#define SMALL_BUFFER	64
#define SAVED_MAX		(2 * HERALD_SEGMENTS)

/* Segments as they were before they were recycled, each in memory of its size. */
static struct
{
	HeraldQueue  *queue;
	char	   *bytes[SAVED_MAX];
	HeraldPosition segments[SAVED_MAX];
	int			count;
	int			calls;
	int			gone_from;		/* from this call on nothing is there */
}			saved;

static bool
read_saved(HeraldPosition from, uint64_t length, char *to)
{
	HeraldPosition segment = from & ~(saved.queue->segment_size - 1);

	assert_true(length > 0);
	assert_true(from + length <= segment + saved.queue->segment_size);
	assert_true(from < atomic_load(&saved.queue->tail));
	if (saved.calls++ >= saved.gone_from)
		return false;
	for (int i = 0; i < saved.count; i++)
		if (saved.segments[i] == segment)
		{
			memcpy(to, saved.bytes[i] + (from - segment), length);
			return true;
		}
	return false;
}

/* A queue whose segments are going to be saved. */
static HeraldQueue *
log_new_saved(void)
{
	HeraldQueue  *queue = log_new();

	for (int i = 0; i < saved.count; i++)
		free(saved.bytes[i]);
	memset(&saved, 0, sizeof(saved));
	saved.queue = queue;
	saved.gone_from = INT_MAX;
	return queue;
}

/* Save the ring's oldest segment, and recycle it.  All of it has been dispatched. */
static void
spill(HeraldQueue *queue)
{
	HeraldPosition segment = atomic_load(&queue->tail);
	char	   *bytes = memory_new(queue->segment_size);

	assert_true(saved.count < SAVED_MAX);
	memcpy(bytes, (const void *) herald_queue_at(queue, segment), queue->segment_size);
	saved.bytes[saved.count] = bytes;
	saved.segments[saved.count++] = segment;
	assert_true(herald_queue_recycle(queue, segment + queue->segment_size));
}

static HeraldReader
reader_new(HeraldQueue *queue, HeraldPosition from, size_t buffer_size)
{
	HeraldReader reader;

	herald_reader_begin(&reader, queue, DATABASE, from, atomic_load(&queue->dispatched),
						memory_new(buffer_size), buffer_size);
	herald_reader_use_spilled(&reader, read_saved);
	return reader;
}

static void
grow_buffer(HeraldReader *reader)
{
	uint64_t	room = HERALD_ALIGN_UP(reader->room_needed);

	assert_true(room > reader->buffer_size);
	free(reader->buffer);
	herald_reader_set_buffer(reader, memory_new(room), room);
}

static void
assert_result(HeraldReader *reader, HeraldReadResult expected)
{
	assert_int_equal(read_growing(reader, &(HeraldMessage) {0}), expected);
}

/* The n-th message of send_numbered(). */
static void
number(char *payload, int n)
{
	snprintf(payload, 512, "%d %0*d", n, 1 + n * 37 % 400, n);
}

/*
 * Batches of one to five numbered messages over `segments` segments, with aborted
 * ones and those of another database between them, and fillers at the borders.
 * Returns the number of messages.
 */
static int
send_numbered(HeraldQueue *queue, int segments)
{
	HeraldPosition end = atomic_load(&queue->head) + (uint64_t) segments * queue->segment_size;
	int			sent = 0;

	for (int batch = 0; atomic_load(&queue->head) < end; batch++)
	{
		char		bytes[4096] __attribute__((aligned(8)));
		uint64_t	length = 0;

		for (int i = 0; i < 1 + batch % 5; i++)
		{
			char		payload[512];

			number(payload, sent++);
			length += entry_write(bytes + length, "c", payload, strlen(payload));
		}
		herald_queue_commit(queue, batch_reserve_bytes(queue, DATABASE, bytes, length), 0, SENDER_XID);
		if (batch % 3 == 0)
			herald_queue_abort(queue, batch_reserve_bytes(queue, DATABASE, bytes, length));
		if (batch % 4 == 0)
			herald_queue_commit(queue, batch_reserve_bytes(queue, OTHER_DATABASE, bytes, length), 0, SENDER_XID);
	}
	dispatch_all(queue);
	return sent;
}

/* Guards: reading goes from saved segments into memory, with any chunk size and border. */
static void
test_borders(void **state UNUSED)
{
	for (int spilled = 0; spilled <= 4; spilled++)
		for (size_t size = SMALL_BUFFER; size <= 2048; size += size < 256 ? 8 : 448)
		{
			HeraldQueue  *queue = log_new_saved();
			HeraldPosition first = atomic_load(&queue->head);
			int			sent = send_numbered(queue, 4);
			HeraldReader reader;

			for (int i = 0; i < spilled; i++)
				spill(queue);
			reader = reader_new(queue, first, size);
			for (int n = 0; n < sent; n++)
			{
				char		payload[512];

				number(payload, n);
				assert_next(&reader, payload);
			}
			assert_result(&reader, HERALD_READ_END);
			assert_int_equal(reader.position, atomic_load(&queue->dispatched));
			assert_int_equal(saved.calls > 0, spilled > 0);
			free(reader.buffer);
			free(queue);
		}
}

/* Guards: no byte that is in the ring is looked for elsewhere. */
static void
test_ring_first(void **state UNUSED)
{
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;

	(void) send_numbered(queue, 3);
	spill(queue);
	spill(queue);
	reader = reader_new(queue, first + 2 * queue->segment_size, SMALL_BUFFER);
	assert_result(&reader, HERALD_READ_MESSAGE);
	assert_int_equal(saved.calls, 0);
	free(reader.buffer);
	reader = reader_new(queue, first, SMALL_BUFFER);
	assert_result(&reader, HERALD_READ_MESSAGE);
	assert_int_not_equal(saved.calls, 0);
	free(reader.buffer);
	free(queue);
}

/* Read two segments, spilling `segments` after `after` chunks.  Returns the number of chunks. */
static int
read_and_spill(int after, int segments)
{
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition first = atomic_load(&queue->head);
	int			sent = send_numbered(queue, 2);
	HeraldReader reader = reader_new(queue, first, SMALL_BUFFER);
	HeraldMessage message;
	HeraldReadResult result;
	int			refills = 0;
	int			n = 0;

	while ((result = herald_reader_next(&reader, &message)) != HERALD_READ_END)
	{
		char		payload[512];

		switch (result)
		{
			case HERALD_READ_MESSAGE:
				number(payload, n++);
				assert_string_equal(herald_entry_payload(message.entry), payload);
				break;
			case HERALD_READ_REFILLED:
				if (refills++ == after)
					for (int i = 0; i < segments; i++)
						spill(queue);
				break;
			case HERALD_READ_ROOM:
				grow_buffer(&reader);
				break;
			default:
				fail_msg("result %d", (int) result);
		}
	}
	assert_int_equal(n, sent);
	free(reader.buffer);
	free(queue);
	return refills;
}

/*
 * Guards: the segment that is being read may be saved and recycled between any
 * two chunks, alone or with the next, so that parts of one batch and of one entry
 * come from both places.
 */
static void
test_spilled_while_read(void **state UNUSED)
{
	int			refills = read_and_spill(-1, 0);

	assert_true(refills > 100);
	for (int after = 0; after < refills; after++)
		assert_int_equal(read_and_spill(after, 1 + after % 2), refills);
}

/* Guards: a saved batch that fills its segment: the reader asks for room, and reads it. */
static void
test_largest_batch(void **state UNUSED)
{
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition big;
	HeraldReader reader;
	HeraldMessage message;

	big = batch_reserve_length(queue, queue->segment_size, 'y');
	herald_queue_commit(queue, big, 0, SENDER_XID);
	batch_send(queue, "behind");
	dispatch_all(queue);
	spill(queue);

	reader = reader_new(queue, big, SMALL_BUFFER);
	assert_int_equal(read_next(&reader, &message), HERALD_READ_ROOM);
	assert_int_equal(reader.room_needed, queue->segment_size - HEADER_SIZE);
	assert_int_equal(reader.position, big + HEADER_SIZE);
	assert_int_equal(read_growing(&reader, &message), HERALD_READ_MESSAGE);
	for (const char *at = herald_entry_payload(message.entry); *at != '\0'; at++)
		assert_int_equal(*at, 'y');
	assert_next(&reader, "behind");
	assert_result(&reader, HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

/* The reader has used nothing of the missing bytes: once they are found it goes on with them. */
static void
assert_gone_until_found(HeraldReader *reader, int n)
{
	HeraldPosition at = reader->position;
	HeraldPosition checkpoint = reader->checkpoint;
	char		payload[512];

	assert_result(reader, HERALD_READ_LAPPED);
	assert_int_equal(reader->position, at);
	assert_int_equal(reader->checkpoint, checkpoint);
	saved.gone_from = INT_MAX;
	number(payload, n);
	assert_next(reader, payload);
}

/*
 * Guards: if bytes are gone, at any chunk, the reader reports it each time, has not
 * moved, and has returned nothing of them.
 */
static void
test_gone(void **state UNUSED)
{
	HeraldReadResult result = HERALD_READ_LAPPED;
	int			gone_from;

	for (gone_from = 0; result != HERALD_READ_END; gone_from++)
	{
		HeraldQueue  *queue = log_new_saved();
		HeraldPosition first = atomic_load(&queue->head);
		HeraldReader reader;
		char		payload[512];
		int			n = 0;

		(void) send_numbered(queue, 2);
		spill(queue);
		saved.gone_from = gone_from;
		reader = reader_new(queue, first, SMALL_BUFFER);
		for (;;)
		{
			HeraldMessage message;

			result = read_growing(&reader, &message);
			if (result != HERALD_READ_MESSAGE)
				break;
			number(payload, n++);
			assert_string_equal(herald_entry_payload(message.entry), payload);
		}
		if (result == HERALD_READ_END)
			assert_int_equal(saved.calls, gone_from);
		else
		{
			assert_int_equal(result, HERALD_READ_LAPPED);
			assert_int_equal(saved.calls, gone_from + 1);
			assert_gone_until_found(&reader, n);
		}
		free(reader.buffer);
		free(queue);
	}
	assert_true(gone_from > 100);
}

/* Guards: without a function to read saved segments, bytes outside of the ring are gone. */
static void
test_nowhere_else(void **state UNUSED)
{
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;

	(void) send_numbered(queue, 2);
	spill(queue);
	reader = reader_new(queue, first, SMALL_BUFFER);
	herald_reader_use_spilled(&reader, NULL);
	assert_result(&reader, HERALD_READ_LAPPED);
	assert_int_equal(saved.calls, 0);
	free(reader.buffer);
	free(queue);
}

/* Guards: damaged bytes are noticed in saved segments as in memory. */
static void
test_damaged(void **state UNUSED)
{
	static const uint64_t poisons[] = {0, 1, 0x28, UINT64_MAX, UINT64_C(0x0000FFF800000018)};
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition first = batch_send(queue, "one");

	herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	batch_send(queue, "two");
	leave_in_segment(queue, 16);
	batch_send(queue, "three");
	dispatch_all(queue);
	spill(queue);

	for (uint64_t at = 0; at < queue->segment_size; at += at < 512 ? 8 : queue->segment_size - 1024)
		for (size_t i = 0; i < sizeof(poisons) / sizeof(poisons[0]); i++)
		{
			HeraldReader reader = reader_new(queue, first, SMALL_BUFFER);
			HeraldReadResult result;
			uint64_t	good;

			memcpy(&good, saved.bytes[0] + at, sizeof(good));
			memcpy(saved.bytes[0] + at, &poisons[i], sizeof(good));
			do
				result = read_growing(&reader, &(HeraldMessage) {0});
			while (result == HERALD_READ_MESSAGE);
			assert_true(result == HERALD_READ_END || result == HERALD_READ_DAMAGED);
			if (at == 0)
				assert_int_equal(result, HERALD_READ_DAMAGED);
			memcpy(saved.bytes[0] + at, &good, sizeof(good));
			free(reader.buffer);
		}
	free(queue);
}

/* Guards: after a skip the reader is at its end, and goes on from there when it is extended. */
static void
test_skip(void **state UNUSED)
{
	/* Messages before the skip, which is thus before, in, between and after batches. */
	for (int before = 0; before <= 6; before++)
		for (size_t size = SMALL_BUFFER; size <= 4096; size *= 8)
		{
			HeraldQueue  *queue = log_new_saved();
			HeraldPosition first = atomic_load(&queue->head);
			HeraldPosition end;
			HeraldReader reader;

			for (int batch = 0; batch < 2; batch++)
			{
				char		bytes[1024] __attribute__((aligned(8)));
				uint64_t	length = 0;

				for (int i = 0; i < 3; i++)
					length += entry_write(bytes + length, "c", "left out", 8);
				herald_queue_commit(queue, batch_reserve_bytes(queue, DATABASE, bytes, length), 0, SENDER_XID);
			}
			dispatch_all(queue);
			end = atomic_load(&queue->dispatched);

			reader = reader_new(queue, first, size);
			for (int i = 0; i < before; i++)
				assert_next(&reader, "left out");
			herald_reader_skip(&reader);
			assert_int_equal(reader.position, end);
			assert_int_equal(reader.checkpoint, end);
			assert_result(&reader, HERALD_READ_END);
			assert_result(&reader, HERALD_READ_END);

			batch_send(queue, "next");
			batch_send(queue, "and next");
			assert_result(&reader, HERALD_READ_END);
			dispatch_all(queue);
			herald_reader_extend(&reader, atomic_load(&queue->dispatched));
			assert_next(&reader, "next");
			assert_next(&reader, "and next");
			assert_result(&reader, HERALD_READ_END);
			free(reader.buffer);
			free(queue);
		}
}

/* Guards: a reader that is overrun within a batch reports it, and goes on after a skip. */
static void
test_skip_when_gone(void **state UNUSED)
{
	HeraldQueue  *queue = log_new_saved();
	HeraldPosition first = atomic_load(&queue->head);
	HeraldReader reader;

	(void) send_numbered(queue, 1);
	leave_in_segment(queue, 8);
	dispatch_all(queue);
	reader = reader_new(queue, first, SMALL_BUFFER);
	while (herald_reader_next(&reader, &(HeraldMessage) {0}) != HERALD_READ_MESSAGE)
		;
	spill(queue);
	saved.gone_from = 0;
	assert_result(&reader, HERALD_READ_LAPPED);
	herald_reader_skip(&reader);
	assert_result(&reader, HERALD_READ_END);
	assert_int_equal(reader.checkpoint, atomic_load(&queue->dispatched));

	/* The reader's end may be where a filler is going to be. */
	batch_send(queue, "next");
	dispatch_all(queue);
	herald_reader_extend(&reader, atomic_load(&queue->dispatched));
	assert_next(&reader, "next");
	assert_result(&reader, HERALD_READ_END);
	free(reader.buffer);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_borders),
		cmocka_unit_test(test_ring_first),
		cmocka_unit_test(test_spilled_while_read),
		cmocka_unit_test(test_largest_batch),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_nowhere_else),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_skip_when_gone),
	};

	return cmocka_run_group_tests_name("reader, spilled", tests, NULL, NULL);
}
