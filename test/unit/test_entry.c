/*-------------------------------------------------------------------------
 *
 * test_entry.c
 *	  Unit tests of queue_layout.h: words, entries and the hash.
 *
 * Guards: a length or a kind from shared memory is never used before it has
 * been checked.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#define CHANNEL		"orders"
#define PAYLOAD		"42 paid"

/* An entry in memory of exactly its size. */
static HeraldEntry *
entry_new(void)
{
	uint64_t	length = herald_entry_length(strlen(CHANNEL), strlen(PAYLOAD));
	char	   *bytes = memory_new(length);

	assert_int_equal(entry_write(bytes, CHANNEL, PAYLOAD, strlen(PAYLOAD)), length);
	return (HeraldEntry *) bytes;
}

/* Guards: position and state share a word without touching each other. */
static void
test_word(void **state UNUSED)
{
	HeraldPosition high = UINT64_C(0xFFFFFFFFFFFFFFF8);

	for (unsigned s = 0; s <= HERALD_BATCH_FILLER; s++)
	{
		assert_int_equal(herald_word_position(herald_word_make(high, s)), high);
		assert_int_equal(herald_word_state(herald_word_make(high, s)), s);
	}
	assert_int_equal(herald_word_make(0, HERALD_BATCH_CLEAR), 0);
}

/* Guards: lengths are rounded up to 8 and count both NULs and the pid. */
static void
test_length(void **state UNUSED)
{
	assert_int_equal(HERALD_ALIGN_UP(0), 0);
	assert_int_equal(HERALD_ALIGN_UP(1), 8);
	assert_int_equal(HERALD_ALIGN_UP(8), 8);
	assert_int_equal(herald_entry_length(0, 0), 24);
	assert_int_equal(herald_entry_length(1, 1), 24);
	assert_int_equal(herald_entry_length(1, 2), 32);
	assert_int_equal(herald_entry_length(63, 7999) % HERALD_ALIGN, 0);
	assert_true(herald_entry_length(63, 7999) >= 16 + 4 + 64 + 8000);
}

/* Guards: an entry that a sender writes is valid, and its parts can be read. */
static void
test_valid(void **state UNUSED)
{
	HeraldEntry *entry = entry_new();
	char	   *smallest = memory_new(herald_entry_length(0, 0));

	assert_true(herald_entry_is_valid(entry, entry->length));
	assert_true(herald_entry_is_valid(entry, UINT64_MAX));
	assert_string_equal(herald_entry_channel(entry), CHANNEL);
	assert_string_equal(herald_entry_payload(entry), PAYLOAD);

	entry_write(smallest, "", "", 0);
	assert_true(herald_entry_is_valid((HeraldEntry *) smallest, herald_entry_length(0, 0)));
	assert_string_equal(herald_entry_payload((HeraldEntry *) smallest), "");
	free(entry);
	free(smallest);
}

/* Guards: an entry is not read beyond the given room, where the memory ends. */
static void
test_room(void **state UNUSED)
{
	HeraldEntry *entry = entry_new();
	uint32_t	length = entry->length;

	for (uint64_t room = 0; room < length; room++)
	{
		char	   *part = memory_new(room + 1);

		memcpy(part, entry, room);
		assert_false(herald_entry_is_valid((HeraldEntry *) part, room));
		free(part);
	}
	free(entry);
}

/* Guards: each of the three lengths is rejected, with every kind of wrong value. */
static void
test_damaged_lengths(void **state UNUSED)
{
	static const uint32_t lengths[] = {
		0, 1, 7, 8, 15, 16, 17, 23, 24, 25, 32, 41, 47, 49, 56, 1 << 20, INT32_MAX, (uint32_t) INT32_MAX + 1,
		UINT32_MAX - 7, UINT32_MAX
	};
	static const uint32_t bodies[] = {
		0, 1, HERALD_BODY_PID, HERALD_BODY_PID + 6, HERALD_BODY_PID + 7, 25, 32, 40,
		INT32_MAX, UINT32_MAX - 16, UINT32_MAX
	};
	static const uint16_t channels[] = {
		14, 15, 16, 20, 1 << 10, INT16_MAX, UINT16_MAX - 5, UINT16_MAX - 4, UINT16_MAX
	};
	HeraldEntry *entry = entry_new();
	HeraldEntry good = *entry;

	assert_int_equal(good.length, 40);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
	{
		entry->length = lengths[i];
		assert_false(herald_entry_is_valid(entry, good.length));
	}
	entry->length = good.length;

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
	{
		entry->body_length = bodies[i];
		assert_false(herald_entry_is_valid(entry, good.length));
	}
	entry->body_length = good.body_length;

	for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++)
	{
		entry->channel_length = channels[i];
		assert_false(herald_entry_is_valid(entry, good.length));
	}
	entry->channel_length = good.channel_length;
	assert_true(herald_entry_is_valid(entry, good.length));
	free(entry);
}

/* Guards: an entry is rejected unless its channel and payload are C strings. */
static void
test_missing_nul(void **state UNUSED)
{
	HeraldEntry *entry = entry_new();
	char	   *channel_nul = entry->body + HERALD_BODY_PID + strlen(CHANNEL);

	*channel_nul = 'x';
	assert_false(herald_entry_is_valid(entry, entry->length));
	*channel_nul = '\0';
	entry->body[entry->body_length - 1] = 'x';
	assert_false(herald_entry_is_valid(entry, entry->length));
	free(entry);
}

/*
 * Guards: the entries of a reference are valid, and their fields right, in memory of
 * exactly their size.
 */
static void
test_reference(void **state UNUSED)
{
	char	   *file = memory_new(sizeof(HeraldEntry) + sizeof(HeraldFileReference));
	char	   *channel = memory_new(herald_entry_length(strlen(CHANNEL), 0));
	char	   *all = memory_new(sizeof(HeraldEntry));
	uint64_t	length;

	length = entry_write_file(file, UINT64_MAX, 800);
	assert_true(herald_entry_is_valid((HeraldEntry *) file, length));
	assert_int_equal(herald_entry_file((HeraldEntry *) file).number, UINT64_MAX);
	assert_int_equal(herald_entry_file((HeraldEntry *) file).length, 800);

	length = entry_write_channel(channel, CHANNEL);
	assert_true(herald_entry_is_valid((HeraldEntry *) channel, length));
	assert_string_equal(herald_entry_channel((HeraldEntry *) channel), CHANNEL);

	length = entry_write_all_listeners(all);
	assert_true(herald_entry_is_valid((HeraldEntry *) all, length));
	free(file);
	free(channel);
	free(all);
}

/* Guards: the entry of a commit is valid, and its fields right, in memory of exactly its size. */
static void
test_commit(void **state UNUSED)
{
	char	   *bytes = memory_new(HERALD_COMMIT_LENGTH);
	HeraldCommitId commit;

	assert_int_equal(entry_write_commit(bytes, UINT64_MAX, 800), HERALD_COMMIT_LENGTH);
	assert_true(herald_entry_is_valid((HeraldEntry *) bytes, HERALD_COMMIT_LENGTH));
	commit = herald_entry_commit((HeraldEntry *) bytes);
	assert_true(commit.run == UINT64_MAX && commit.place == 800 && commit.end == 0);
	free(bytes);
}

/* Guards: the pid of a notification is read as the protocol has it, highest byte first. */
static void
test_pid(void **state UNUSED)
{
	char		bytes[256] __attribute__((aligned(8)));
	const HeraldEntry *entry = (const HeraldEntry *) bytes;
	char	   *pid = ((HeraldEntry *) bytes)->body;

	entry_write(bytes, "channel", "payload", 7);
	assert_int_equal(herald_entry_pid(entry), 0);
	memcpy(pid, "\x00\x01\xe2\x40", HERALD_BODY_PID);
	assert_int_equal(herald_entry_pid(entry), 123456);
	memcpy(pid, "\x7f\xff\xff\xfe", HERALD_BODY_PID);
	assert_int_equal(herald_entry_pid(entry), INT32_MAX - 1);
}

/* Guards: an entry is valid only if its kind is known, and its body is one of that kind. */
static void
test_kinds(void **state UNUSED)
{
	static const uint32_t wrong[] = {0, 1, 8, 15, 17, 24};
	static const uint32_t wrong_commit[] = {0, 1, 8, 16, 23, 25, 32, 40};
	HeraldEntry *entry = entry_new();
	char		reference[64] __attribute__((aligned(8)));
	HeraldEntry *file = (HeraldEntry *) reference;

	for (int kind = 0; kind <= UINT16_MAX; kind++)
	{
		entry->kind = (uint16_t) kind;
		assert_int_equal(herald_entry_is_valid(entry, entry->length),
						 kind == HERALD_ENTRY_NOTIFICATION || kind == HERALD_ENTRY_CHANNEL);
	}
	free(entry);

	memset(reference, 0, sizeof(reference));
	entry_write_file(reference, 1, 800);
	file->length = sizeof(reference);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
	{
		file->body_length = wrong[i];
		assert_false(herald_entry_is_valid(file, sizeof(reference)));
	}
	file->kind = HERALD_ENTRY_ALL_LISTENERS;
	assert_false(herald_entry_is_valid(file, sizeof(reference)));
	file->kind = HERALD_ENTRY_COMMIT;
	for (size_t i = 0; i < sizeof(wrong_commit) / sizeof(wrong_commit[0]); i++)
	{
		file->body_length = wrong_commit[i];
		assert_false(herald_entry_is_valid(file, sizeof(reference)));
	}
}

/* Guards: no combination of small lengths leads out of the entry's memory. */
static void
test_all_small_lengths(void **state UNUSED)
{
	HeraldEntry *entry = entry_new();
	uint32_t	room = entry->length;

	for (uint32_t length = 0; length <= room + 16; length++)
		for (uint32_t body = 0; body <= room + 8; body++)
			for (uint32_t channel = 0; channel <= room + 8; channel++)
			{
				entry->length = length;
				entry->body_length = body;
				entry->channel_length = (uint16_t) channel;
				if (!herald_entry_is_valid(entry, room))
					continue;
				assert_true(herald_entry_payload(entry) + strlen(herald_entry_payload(entry)) <
							(char *) entry + room);
				assert_true(strlen(herald_entry_channel(entry)) <= channel);
			}
	free(entry);
}

/* Guards: the hash chains, uses its bytes as unsigned, and spreads its low bits. */
static void
test_hash(void **state UNUSED)
{
	enum
	{
		BUCKETS = 64, NAMES = 64 * 100
	};
	int			hits[BUCKETS] = {0};

	assert_int_equal(herald_hash("abc", 3, 0), herald_hash("abcd", 3, 0));
	assert_int_not_equal(herald_hash("abc", 3, 0), herald_hash("abd", 3, 0));
	assert_int_not_equal(herald_hash("abc", 3, 0), herald_hash("abc", 3, 1));
	assert_int_not_equal(herald_hash("\xff", 1, 0), herald_hash("\x7f", 1, 0));

	for (int i = 0; i < NAMES; i++)
	{
		char		name[32];
		int			length = snprintf(name, sizeof(name), "channel_%d", i);

		hits[herald_hash(name, (size_t) length, 0) % BUCKETS]++;
	}
	for (int i = 0; i < BUCKETS; i++)
		assert_true(hits[i] >= 50 && hits[i] <= 150);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_valid),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_damaged_lengths),
		cmocka_unit_test(test_missing_nul),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_commit),
		cmocka_unit_test(test_pid),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_all_small_lengths),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
