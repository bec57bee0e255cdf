/*-------------------------------------------------------------------------
 *
 * test_commit_entry.c
 *	  Unit tests of queue.c and queue_reader.c: batches that begin with a HERALD_ENTRY_COMMIT.
 *
 * Guards: each notification of such a batch comes with the entry's contents, and
 * no other notification does; the commit's end is stored there and nowhere else;
 * and an entry of this kind in any other place is damage.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#define SMALL_BUFFER	64
#define RUN				UINT64_C(0x0123456789abcdef)
#define PLACE			UINT64_C(0x1a2b38)
#define COMMIT_END		UINT64_C(0xfedcba9876543210)
#define FILE_NUMBER		7

static const HeraldCommitId none = {0};

/* The only file. */
static char file[2 * HERALD_RING_MIN] __attribute__((aligned(8)));
static uint64_t file_length;

static bool
read_file(uint64_t number, uint64_t offset, uint64_t length, char *to)
{
	if (number != FILE_NUMBER || offset + length > file_length)
		return false;
	memcpy(to, file + offset, length);
	return true;
}

static uint64_t
put(char *to, const char *payload)
{
	return entry_write(to, "channel", payload, strlen(payload));
}

/* Send a batch; its commit's end is stored if commit_end is not 0. */
static HeraldPosition
send(HeraldQueue *queue, const char *entries, uint64_t length, uint64_t commit_end)
{
	HeraldPosition position = batch_reserve_bytes(queue, DATABASE, entries, length);

	if (commit_end != 0)
		herald_queue_set_commit_end(queue, position, commit_end);
	herald_queue_commit(queue, position, 1234, SENDER_XID);
	return position;
}

static HeraldReader
reader_new(HeraldQueue *queue, size_t buffer_size)
{
	HeraldReader reader;

	dispatch_all(queue);
	herald_reader_begin(&reader, queue, DATABASE, atomic_load(&queue->tail),
						atomic_load(&queue->dispatched), memory_new(buffer_size), buffer_size);
	herald_reader_use_files(&reader, read_file, NULL);
	return reader;
}

static void
assert_message(HeraldReader *reader, const char *payload, HeraldCommitId commit)
{
	HeraldMessage message;

	memset(&message, 0xA5, sizeof(message));
	assert_int_equal(read_growing(reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(message.entry->kind, HERALD_ENTRY_NOTIFICATION);
	assert_string_equal(herald_entry_payload(message.entry), payload);
	assert_memory_equal(&message.commit, &commit, sizeof(commit));
	assert_true(message.sender.xid == SENDER_XID && message.sender.role == SENDER_ROLE);
}

static void
assert_end(HeraldReader *reader, HeraldReadResult expected)
{
	assert_int_equal(read_growing(reader, &(HeraldMessage) {0}), expected);
	free(reader->buffer);
}

/* The entries of a batch with a commit are reported as damaged after `messages` messages. */
static void
assert_damaged(const char *entries, uint64_t length, int messages)
{
	HeraldQueue *queue = log_new();
	HeraldReader reader;

	send(queue, entries, length, 0);
	reader = reader_new(queue, 4096);
	for (int i = 0; i < messages; i++)
		assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_MESSAGE);
	assert_end(&reader, HERALD_READ_DAMAGED);
	free(queue);
}

/*
 * Guards: with any chunk size, all notifications of the batch come with its commit, those of
 * batches around it without, and the entry itself is not returned.
 */
static void
test_messages(void **state UNUSED)
{
	const HeraldCommitId first = {RUN, PLACE, COMMIT_END};
	const HeraldCommitId second = {1, 2, 3};

	for (size_t size = SMALL_BUFFER; size <= 1024; size += size < 256 ? 8 : 256)
	{
		HeraldQueue *queue = log_new();
		HeraldReader reader;
		char		entries[512] __attribute__((aligned(8)));
		uint64_t	length;

		batch_send(queue, "before");
		length = entry_write_commit(entries, RUN, PLACE);
		length += put(entries + length, "one");
		length += put(entries + length, "two");
		send(queue, entries, length, COMMIT_END);
		length = entry_write_commit(entries, 1, 2);
		length += put(entries + length, "three");
		send(queue, entries, length, 3);
		send(queue, entries, entry_write_commit(entries, 8, 8), 8);
		batch_send(queue, "behind");

		reader = reader_new(queue, size);
		assert_message(&reader, "before", none);
		assert_message(&reader, "one", first);
		assert_message(&reader, "two", first);
		assert_message(&reader, "three", second);
		assert_message(&reader, "behind", none);
		assert_end(&reader, HERALD_READ_END);
		free(queue);
	}
}

/* Guards: what is in the file of a reference comes with the reference's commit. */
static void
test_file(void **state UNUSED)
{
	const HeraldCommitId commit = {RUN, PLACE, COMMIT_END};

	file_length = put(file, "one");
	file_length += put(file + file_length, "two");
	for (int channels = 0; channels <= 2; channels++)
		for (size_t size = SMALL_BUFFER; size <= 256; size += 8)
		{
			HeraldQueue *queue = log_new();
			HeraldReader reader;
			char		entries[512] __attribute__((aligned(8)));
			uint64_t	length = entry_write_commit(entries, RUN, PLACE);

			for (int i = 0; i < channels; i++)
				length += entry_write_channel(entries + length, "channel");
			if (channels == 0)
				length += entry_write_all_listeners(entries + length);
			length += entry_write_file(entries + length, FILE_NUMBER, file_length);
			send(queue, entries, length, COMMIT_END);
			batch_send(queue, "behind");

			reader = reader_new(queue, size);
			assert_message(&reader, "one", commit);
			assert_message(&reader, "two", commit);
			assert_message(&reader, "behind", none);
			assert_end(&reader, HERALD_READ_END);
			free(queue);
		}
}

/* Guards: the entry is damage behind another entry, a second time, in a reference or in a file. */
static void
test_out_of_place(void **state UNUSED)
{
	char		entries[512] __attribute__((aligned(8)));
	uint64_t	length;

	length = put(entries, "one");
	length += entry_write_commit(entries + length, RUN, PLACE);
	length += put(entries + length, "two");
	assert_damaged(entries, length, 1);

	length = entry_write_commit(entries, RUN, PLACE);
	length += entry_write_commit(entries + length, RUN, PLACE);
	assert_damaged(entries, length, 0);

	file_length = put(file, "one");
	length = entry_write_all_listeners(entries);
	length += entry_write_commit(entries + length, RUN, PLACE);
	length += entry_write_file(entries + length, FILE_NUMBER, file_length);
	assert_damaged(entries, length, 0);

	/* In a file: at its start, behind an entry, and at the offset that is the commit's place in the queue. */
	for (int behind = 0; behind <= 2; behind++)
	{
		static char payload[sizeof(file)];
		HeraldQueue *queue = log_new();
		uint64_t	place = atomic_load(&queue->head) + HEADER_SIZE;

		free(queue);
		file_length = 0;
		if (behind == 1)
			file_length = put(file, "one");
		else if (behind == 2)
		{
			memset(payload, 'x', sizeof(payload));
			file_length = entry_write(file, "channel", payload, place - herald_entry_length(strlen("channel"), 0));
			assert_true(file_length == place);
		}
		file_length += entry_write_commit(file + file_length, RUN, PLACE);
		length = entry_write_commit(entries, RUN, PLACE);
		length += entry_write_all_listeners(entries + length);
		length += entry_write_file(entries + length, FILE_NUMBER, file_length);
		assert_damaged(entries, length, behind > 0);
	}
}

/* Guards: a batch whose entry is not valid, or is cut off, is damage. */
static void
test_damaged_entry(void **state UNUSED)
{
	char		entries[64] __attribute__((aligned(8)));
	uint64_t	length = entry_write_commit(entries, RUN, PLACE);

	for (uint64_t cut = 8; cut < length; cut += 8)
		assert_damaged(entries, cut, 0);
	((HeraldEntry *) entries)->body_length--;
	assert_damaged(entries, length, 0);
}

/* Guards: the commit's end changes one word of a batch that has the entry, and none of any other batch. */
static void
test_set_commit_end(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	char		entries[512] __attribute__((aligned(8)));
	char		before[512 + HEADER_SIZE] __attribute__((aligned(8)));

	for (int how = 0; how < 6; how++)
	{
		uint64_t	length = 0;
		HeraldPosition position;
		uint64_t	changed = HEADER_SIZE + HERALD_COMMIT_LENGTH - sizeof(uint64_t);

		if (how <= 1)
			length = entry_write_commit(entries, RUN, PLACE);
		if (how == 1 || how == 2)
			length += put(entries + length, "one");
		if (how == 3)
		{
			length = put(entries, "one");
			length += entry_write_commit(entries + length, RUN, PLACE);
		}
		if (how == 4)
			length = entry_write_all_listeners(entries);
		position = batch_reserve_bytes(queue, DATABASE, entries, length);
		memcpy(before, (const void *) header_at(queue, position), HEADER_SIZE + length);
		if (how == 5)			/* the entry's first words follow the batch's end */
			entry_write_commit((char *) (header_at(queue, position) + 1), RUN, PLACE);

		herald_queue_set_commit_end(queue, position, COMMIT_END);
		if (how <= 1)
		{
			assert_int_equal(word_at(queue, position + changed), COMMIT_END);
			set_word_at(queue, position + changed, 0);
		}
		assert_memory_equal(header_at(queue, position), before, HEADER_SIZE + length);
		if (how == 5)
			assert_int_equal(word_at(queue, position + changed), 0);
		herald_queue_abort(queue, position);
	}
	free(queue);
}

/* Guards: a batch without entries at the ring's end has nothing behind it. */
static void
test_set_commit_end_at_border(void **state UNUSED)
{
	HeraldQueue *queue = log_new();
	HeraldPosition position;

	for (int i = 0; i < HERALD_SEGMENTS - 1; i++)
		leave_in_segment(queue, 0);
	leave_in_segment(queue, HEADER_SIZE);
	position = batch_reserve_bytes(queue, DATABASE, NULL, 0);
	assert_int_equal((position + HEADER_SIZE) % queue->ring_size, 0);
	herald_queue_set_commit_end(queue, position, COMMIT_END);
	herald_queue_abort(queue, position);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_out_of_place),
		cmocka_unit_test(test_damaged_entry),
		cmocka_unit_test(test_set_commit_end),
		cmocka_unit_test(test_set_commit_end_at_border),
	};

	return cmocka_run_group_tests_name("commit entry", tests, NULL, NULL);
}
