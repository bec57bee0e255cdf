/*-------------------------------------------------------------------------
 *
 * test_queue_reader_files.c
 *	  Unit tests of queue_reader.c: messages in a file, with a reference to it.
 *
 * Guards: a reader finds the file's messages in their place among the others; it
 * notices that a file is gone; and an entry that no sender would have put where
 * it is does not lead it astray.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#define SMALL_BUFFER	64
#define FILE_NUMBER		UINT64_C(0x1122334455667788)
#define FILE_MESSAGES	5

/* The only file. */
static struct
{
	char	   *bytes;
	uint64_t	length;
}			file;

static bool
read_file(uint64_t number, uint64_t offset, uint64_t length, char *to)
{
	if (number != FILE_NUMBER || offset + length > file.length)
		return false;
	memcpy(to, file.bytes + offset, length);
	return true;
}

static void
payload_of(char *payload, int n)
{
	snprintf(payload, 64, "%d %0*d", n, 1 + n % FILE_MESSAGES * 7, n);
}

static void
file_write(int messages)
{
	char		payload[64];

	free(file.bytes);
	file.bytes = memory_new((size_t) (messages + 1) * 128);
	file.length = 0;
	for (int i = 0; i < messages; i++)
	{
		payload_of(payload, i);
		file.length += entry_write(file.bytes + file.length, "channel", payload, strlen(payload));
	}
}

static void
send(HeraldQueue *queue, const char *entries, uint64_t length)
{
	herald_queue_commit(queue, batch_reserve_bytes(queue, DATABASE, entries, length), 1234, SENDER_XID);
}

/* A reference to `length` bytes of a file, with some channels; 0 stands for all listeners. */
static void
send_reference(HeraldQueue *queue, uint64_t number, uint64_t length, int channels)
{
	char		entries[1024] __attribute__((aligned(8)));
	uint64_t	used = 0;

	if (channels == 0)
		used += entry_write_all_listeners(entries + used);
	for (int i = 0; i < channels; i++)
		used += entry_write_channel(entries + used, "channel");
	used += entry_write_file(entries + used, number, length);
	send(queue, entries, used);
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

/* A batch of these entries is reported as damaged after `messages` messages. */
static void
assert_damaged(const char *entries, uint64_t length, int messages)
{
	HeraldQueue *queue = log_new();
	HeraldReader reader;
	HeraldMessage message;

	send(queue, entries, length);
	reader = reader_new(queue, 4096);
	for (int i = 0; i < messages; i++)
		assert_int_equal(read_growing(&reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(read_growing(&reader, &message), HERALD_READ_DAMAGED);
	free(reader.buffer);
	free(queue);
}

/*
 * Guards: with any chunk size and number of messages, none comes twice, and the reference
 * is not returned.
 */
static void
test_messages(void **state UNUSED)
{
	for (int messages = 0; messages <= FILE_MESSAGES; messages++)
		for (size_t size = SMALL_BUFFER; size <= 1024; size += size < 256 ? 8 : 256)
			for (int channels = 0; channels <= 3; channels++)
			{
				HeraldQueue *queue = log_new();
				HeraldReader reader;
				char		payload[64];

				file_write(messages);
				batch_send(queue, "before");
				send_reference(queue, FILE_NUMBER, file.length, channels);
				batch_send(queue, "behind");
				reader = reader_new(queue, size);
				assert_next(&reader, "before");
				for (int i = 0; i < messages; i++)
				{
					payload_of(payload, i);
					assert_next(&reader, payload);
				}
				assert_next(&reader, "behind");
				assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_END);
				free(reader.buffer);
				free(queue);
			}
}

/*
 * Guards: a file that is gone or shorter than its reference says is noticed, and so is a
 * missing read function.
 */
static void
test_gone(void **state UNUSED)
{
	for (int how = 0; how < 3; how++)
	{
		HeraldQueue *queue = log_new();
		HeraldReader reader;

		file_write(1);
		send_reference(queue, how == 0 ? FILE_NUMBER + 1 : FILE_NUMBER,
					   how == 1 ? file.length + 8 : file.length, 1);
		batch_send(queue, "behind");
		reader = reader_new(queue, 4096);
		if (how == 2)
			herald_reader_use_files(&reader, NULL, NULL);
		assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_LAPPED);
		herald_reader_skip(&reader);
		assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_END);
		free(reader.buffer);
		free(queue);
	}
}

static bool
listens_to_other(const HeraldEntry *entry, HeraldPosition batch UNUSED)
{
	return strcmp(herald_entry_channel(entry), "other") == 0;
}

/* Guards: a file with nothing for the reader is passed over, whether it is there or gone; others are read. */
static void
test_for_others(void **state UNUSED)
{
	static const char *const channels[] = {"channel", "other", NULL};

	for (size_t i = 0; i < 3; i++)
		for (int gone = 0; gone <= 1; gone++)
			for (size_t size = SMALL_BUFFER; size <= 256; size += 8)
			{
				HeraldQueue *queue = log_new();
				HeraldReader reader;
				char		entries[256] __attribute__((aligned(8)));
				char		payload[64];
				uint64_t	length = entry_write_channel(entries, "channel");
				bool		for_us = i > 0;

				file_write(1);
				length += channels[i] ? entry_write_channel(entries + length, channels[i]) :
					entry_write_all_listeners(entries + length);
				length += entry_write_channel(entries + length, "channel");
				length += entry_write_file(entries + length, FILE_NUMBER + gone, file.length);
				send(queue, entries, length);
				batch_send(queue, "behind");

				reader = reader_new(queue, size);
				herald_reader_use_files(&reader, read_file, listens_to_other);
				if (for_us && gone)
					assert_int_equal(read_growing(&reader, &(HeraldMessage) {0}), HERALD_READ_LAPPED);
				else
				{
					payload_of(payload, 0);
					if (for_us)
						assert_next(&reader, payload);
					assert_next(&reader, "behind");
				}
				free(reader.buffer);
				free(queue);
			}
}

/*
 * Guards: a reference is channels, then a file, and nothing else; and a file's length must
 * be aligned.
 */
static void
test_damaged_reference(void **state UNUSED)
{
	char		entries[256] __attribute__((aligned(8)));
	uint64_t	length;

	file_write(1);
	assert_damaged(entries, entry_write_channel(entries, "channel"), 0);
	assert_damaged(entries, entry_write_all_listeners(entries), 0);
	file.length += 4;
	length = entry_write_all_listeners(entries);
	assert_damaged(entries, length + entry_write_file(entries + length, FILE_NUMBER, file.length), 0);
	file.length -= 4;
	assert_damaged(entries, entry_write_file(entries, FILE_NUMBER, file.length), 0);

	length = entry_write(entries, "channel", "one", 3);
	length += entry_write_channel(entries + length, "channel");
	assert_damaged(entries, length, 1);
}

/* Guards: a file holds only notifications, and no reference to another file, or to itself. */
static void
test_damaged_file(void **state UNUSED)
{
	char		reference[256] __attribute__((aligned(8)));
	uint64_t	length;

	for (int kind = 0; kind < 4; kind++)
	{
		file_write(1);
		if (kind == 0)
			file.length += entry_write_file(file.bytes + file.length, FILE_NUMBER, file.length);
		else if (kind == 1)
			file.length += entry_write_channel(file.bytes + file.length, "channel");
		else
			file.length += entry_write_all_listeners(file.bytes + file.length);
		if (kind == 3)
			file.length += entry_write_file(file.bytes + file.length, FILE_NUMBER, file.length);
		length = entry_write_all_listeners(reference);
		length += entry_write_file(reference + length, FILE_NUMBER, file.length);
		assert_damaged(reference, length, 1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_for_others),
		cmocka_unit_test(test_damaged_reference),
		cmocka_unit_test(test_damaged_file),
	};
	int			failed = cmocka_run_group_tests_name("reader, files", tests, NULL, NULL);

	free(file.bytes);
	return failed;
}
