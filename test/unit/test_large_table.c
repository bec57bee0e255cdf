/*-------------------------------------------------------------------------
 *
 * test_large_table.c
 *	  Unit tests of large_table.c: the table of large transactions' files.
 *
 * Guards: a file's number is its own for ever; a file stays in the table until it lies below
 * the position that is given up, and its bytes count exactly as long.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "large_table.h"

#define ROLE		10u
#define OTHER_ROLE	11u
#define NO_LIMIT	UINT64_MAX
#define NOTED_MAX	8

/* The first files that were removed, in order; and how many were. */
static struct
{
	uint64_t	number;
	uint64_t	bytes;
}			removed[NOTED_MAX];
static int	removed_count;

static HeraldLargeTable *
table_new(void)
{
	HeraldLargeTable *table = memory_new(sizeof(HeraldLargeTable));

	herald_large_table_init(table);
	return table;
}

/* A file of this size; HERALD_NOT_PLACED: of an open transaction. */
static uint64_t
add(HeraldLargeTable *table, HeraldPosition position, uint64_t bytes)
{
	uint64_t	number = herald_large_table_enter(table, ROLE);

	assert_true(number > 0);
	assert_true(herald_large_table_grow(table, number, bytes, NO_LIMIT));
	assert_true(herald_large_table_place(table, number, position, 1));
	return number;
}

static void
note_removed(uint64_t number, uint64_t bytes)
{
	if (removed_count < NOTED_MAX)
	{
		removed[removed_count].number = number;
		removed[removed_count].bytes = bytes;
	}
	removed_count++;
}

/* Returns the number of files that were removed. */
static int
remove_below(HeraldLargeTable *table, HeraldPosition position)
{
	HeraldPosition highest[HERALD_CHANNEL_SETS] = {0};

	removed_count = 0;
	herald_large_table_remove_below(table, position, highest, note_removed);
	return removed_count;
}

static void
assert_empty(HeraldLargeTable *table)
{
	assert_int_equal(herald_large_table_count(table), 0);
	assert_int_equal(herald_large_table_bytes(table), 0);
	assert_int_equal(herald_large_table_bytes_from(table, 0), 0);
	assert_int_equal(herald_large_table_bytes_open(table), 0);
	assert_int_equal(herald_large_table_bytes_between(table, 0, UINT64_MAX), 0);
	assert_int_equal(herald_large_table_oldest(table), HERALD_NOT_PLACED);
	assert_int_equal(atomic_load(&table->used), 0);
}

/* Guards: in a new table there is nothing, and nothing is found. */
static void
test_empty(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();

	assert_empty(table);
	assert_false(herald_large_table_has(table, 1));
	assert_int_equal(herald_large_table_size(table, 1), 0);
	assert_false(herald_large_table_grow(table, 1, 8, NO_LIMIT));
	assert_false(herald_large_table_complete(table, 1, 8));
	assert_false(herald_large_table_place(table, 1, 8, 1));
	assert_int_equal(remove_below(table, UINT64_MAX), 0);
	assert_empty(table);
	free(table);
}

/* Guards: every entry can be taken; a full table says so, and has room again after a removal. */
static void
test_full(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();

	for (uint64_t i = 1; i <= HERALD_LARGE_FILES_MAX; i++)
		assert_int_equal(add(table, i * HERALD_ALIGN, 16), i);
	assert_int_equal(herald_large_table_count(table), HERALD_LARGE_FILES_MAX);
	assert_int_equal(herald_large_table_bytes(table), 16 * HERALD_LARGE_FILES_MAX);
	assert_int_equal(herald_large_table_enter(table, ROLE), 0);
	assert_int_equal(herald_large_table_count(table), HERALD_LARGE_FILES_MAX);

	/* Entries at the start of the table are free: the last one is still in use. */
	assert_int_equal(remove_below(table, 3 * HERALD_ALIGN), 2);
	assert_int_equal(atomic_load(&table->used), HERALD_LARGE_FILES_MAX);
	assert_int_equal(add(table, HERALD_NOT_PLACED, 16), HERALD_LARGE_FILES_MAX + 1);
	assert_int_equal(add(table, HERALD_NOT_PLACED, 16), HERALD_LARGE_FILES_MAX + 2);
	assert_int_equal(herald_large_table_enter(table, ROLE), 0);
	assert_int_equal(remove_below(table, HERALD_NOT_PLACED), HERALD_LARGE_FILES_MAX - 2);
	assert_int_equal(herald_large_table_count(table), 2);
	free(table);
}

/* Guards: a number is not used again, whatever becomes of its file: files are deleted by name. */
static void
test_number(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	last = 0;

	for (int i = 0; i < 100; i++)
	{
		uint64_t	number = herald_large_table_enter(table, ROLE);

		assert_true(number > last);
		assert_true(herald_large_table_has(table, number));
		assert_false(herald_large_table_has(table, number + 1));
		assert_true(herald_large_table_place(table, number, 0, 0));
		if (i % 3 != 0)
			assert_true(remove_below(table, HERALD_ALIGN) > 0);
		assert_int_equal(herald_large_table_has(table, number), i % 3 == 0);
		last = number;
	}
	free(table);
}

/* Guards: a free entry is used again, without what the file before left there; the end moves back. */
static void
test_reuse(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	first = add(table, 64, 100);
	uint64_t	second = add(table, 128, 200);
	uint64_t	third = add(table, 96, 300);
	uint64_t	again;

	assert_int_equal(atomic_load(&table->used), 3);
	assert_int_equal(remove_below(table, 72), 1);
	assert_false(herald_large_table_has(table, first));
	assert_int_equal(atomic_load(&table->used), 3);
	again = herald_large_table_enter(table, OTHER_ROLE);
	assert_int_equal(atomic_load(&table->used), 3);
	assert_int_equal(herald_large_table_size(table, again), 0);
	assert_int_equal(herald_large_table_bytes_open_of(table, ROLE), 0);
	assert_int_equal(remove_below(table, 72), 0);
	assert_int_equal(herald_large_table_oldest(table), 96);

	/* The entries behind the last file do not count, however many are free. */
	assert_int_equal(remove_below(table, 104), 1);
	assert_false(herald_large_table_has(table, third));
	assert_int_equal(atomic_load(&table->used), 2);
	assert_int_equal(remove_below(table, 136), 1);
	assert_false(herald_large_table_has(table, second));
	assert_int_equal(atomic_load(&table->used), 1);
	assert_true(herald_large_table_has(table, again));
	assert_true(herald_large_table_place(table, again, 0, 0));
	assert_int_equal(remove_below(table, HERALD_ALIGN), 1);
	assert_empty(table);
	free(table);
}

/* Guards: all files together grow up to the limit; a refused growth changes nothing. */
static void
test_grow(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	one = herald_large_table_enter(table, ROLE);
	uint64_t	other = herald_large_table_enter(table, ROLE);

	assert_true(herald_large_table_grow(table, one, 600, 1000));
	assert_true(herald_large_table_grow(table, other, 300, 1000));
	assert_false(herald_large_table_grow(table, other, 101, 1000));
	assert_false(herald_large_table_grow(table, one, 1001, 1000));
	assert_false(herald_large_table_grow(table, one, 1, 800));	/* the limit is lower now */
	assert_false(herald_large_table_grow(table, one, UINT64_MAX, 1000));
	assert_int_equal(herald_large_table_size(table, one), 600);
	assert_int_equal(herald_large_table_size(table, other), 300);
	assert_int_equal(herald_large_table_bytes(table), 900);
	assert_true(herald_large_table_grow(table, one, 100, 1000));
	assert_true(herald_large_table_grow(table, one, 0, 1000));
	assert_int_equal(herald_large_table_size(table, one), 700);
	assert_int_equal(herald_large_table_bytes(table), 1000);
	free(table);
}

/* Guards: a complete file counts with its final size, which is smaller or larger than what it took. */
static void
test_complete(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	other = add(table, HERALD_NOT_PLACED, 50);
	uint64_t	number = add(table, HERALD_NOT_PLACED, 1000);

	assert_true(herald_large_table_complete(table, number, 800));
	assert_int_equal(herald_large_table_size(table, number), 800);
	assert_int_equal(herald_large_table_bytes(table), 850);
	assert_true(herald_large_table_complete(table, number, 1200));
	assert_int_equal(herald_large_table_size(table, number), 1200);
	assert_int_equal(herald_large_table_bytes(table), 1250);
	assert_int_equal(herald_large_table_size(table, other), 50);
	free(table);
}

/* Guards: a file is removed by its position, in whichever order the files came; open ones never. */
static void
test_place(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	late = herald_large_table_enter(table, ROLE);
	uint64_t	early = herald_large_table_enter(table, ROLE);
	uint64_t	open = herald_large_table_enter(table, ROLE);

	assert_int_equal(herald_large_table_oldest(table), HERALD_NOT_PLACED);
	assert_true(herald_large_table_place(table, late, 4096, 1));
	assert_int_equal(herald_large_table_oldest(table), 4096);
	assert_true(herald_large_table_place(table, early, 2048, 1));
	assert_int_equal(herald_large_table_oldest(table), 2048);
	assert_int_equal(remove_below(table, 2048), 0);
	assert_int_equal(remove_below(table, 2048 + HERALD_ALIGN), 1);
	assert_true(herald_large_table_has(table, late));
	assert_int_equal(herald_large_table_oldest(table), 4096);

	/* A transaction that fails after its batch was reserved moves its file to the very first position. */
	assert_true(herald_large_table_place(table, late, 0, 0));
	assert_int_equal(herald_large_table_oldest(table), 0);
	assert_int_equal(remove_below(table, HERALD_NOT_PLACED), 1);
	assert_int_equal(herald_large_table_oldest(table), HERALD_NOT_PLACED);
	assert_true(herald_large_table_has(table, open));
	free(table);
}

/* Guards: each file that is removed is named once, with its size; and the highest position of each set. */
static void
test_removed(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	HeraldPosition highest[HERALD_CHANNEL_SETS] = {0};
	uint64_t	high = add(table, 512, 30);
	uint64_t	low = add(table, 256, 20);
	uint64_t	kept = add(table, 1024, 40);

	assert_true(herald_large_table_place(table, high, 512, 1 | UINT64_C(1) << 63));
	assert_true(herald_large_table_place(table, low, 256, 1 | 4));
	assert_true(herald_large_table_place(table, kept, 1024, UINT64_MAX));
	removed_count = 0;
	herald_large_table_remove_below(table, 1024, highest, note_removed);
	assert_int_equal(removed_count, 2);
	assert_int_equal(removed[0].number, high);
	assert_int_equal(removed[0].bytes, 30);
	assert_int_equal(removed[1].number, low);
	assert_int_equal(removed[1].bytes, 20);
	for (int set = 0; set < HERALD_CHANNEL_SETS; set++)
		assert_int_equal(highest[set], set == 0 || set == 63 ? 512 : set == 2 ? 256 : 0);
	assert_int_equal(herald_large_table_bytes(table), 40);
	assert_int_equal(herald_large_table_count(table), 1);

	/* Only what is removed this time. */
	herald_large_table_remove_below(table, 1024, highest, note_removed);
	assert_int_equal(removed_count, 2);
	herald_large_table_remove_below(table, 1032, highest, note_removed);
	assert_int_equal(removed_count, 3);
	assert_int_equal(removed[2].number, kept);
	assert_int_equal(highest[1], 1024);
	assert_empty(table);
	free(table);
}

/* Guards: bytes are added up from a position on, with open files; between two, without them; by role. */
static void
test_bytes(void **state UNUSED)
{
	HeraldLargeTable *table = table_new();
	uint64_t	other;

	(void) add(table, 64, 1);
	(void) add(table, 128, 10);
	(void) add(table, HERALD_NOT_PLACED, 100);
	other = herald_large_table_enter(table, OTHER_ROLE);
	assert_true(herald_large_table_grow(table, other, 1000, NO_LIMIT));

	assert_int_equal(herald_large_table_bytes(table), 1111);
	assert_int_equal(herald_large_table_bytes_from(table, 0), 1111);
	assert_int_equal(herald_large_table_bytes_from(table, 64), 1111);
	assert_int_equal(herald_large_table_bytes_from(table, 72), 1110);
	assert_int_equal(herald_large_table_bytes_from(table, 136), 1100);
	assert_int_equal(herald_large_table_bytes_open(table), 1100);
	assert_int_equal(herald_large_table_bytes_open_of(table, ROLE), 100);
	assert_int_equal(herald_large_table_bytes_open_of(table, OTHER_ROLE), 1000);
	assert_int_equal(herald_large_table_bytes_open_of(table, OTHER_ROLE + 1), 0);
	assert_int_equal(herald_large_table_bytes_between(table, 64, 128), 1);
	assert_int_equal(herald_large_table_bytes_between(table, 64, 136), 11);
	assert_int_equal(herald_large_table_bytes_between(table, 72, 128), 0);
	assert_int_equal(herald_large_table_bytes_between(table, 0, HERALD_NOT_PLACED), 11);

	/* What has a place is not open any more; what was removed does not count at all. */
	assert_true(herald_large_table_place(table, other, 96, 1));
	assert_int_equal(herald_large_table_bytes_open_of(table, OTHER_ROLE), 0);
	assert_int_equal(herald_large_table_bytes_open(table), 100);
	assert_int_equal(herald_large_table_bytes_between(table, 64, 128), 1001);
	assert_int_equal(remove_below(table, 104), 2);
	assert_int_equal(herald_large_table_bytes(table), 110);
	assert_int_equal(herald_large_table_bytes_from(table, 0), 110);
	assert_int_equal(herald_large_table_bytes_between(table, 0, HERALD_NOT_PLACED), 10);
	free(table);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_number),
		cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_place),
		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_bytes),
	};

	return cmocka_run_group_tests_name("large table", tests, NULL, NULL);
}
