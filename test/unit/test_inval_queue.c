/*-------------------------------------------------------------------------
 *
 * test_inval_queue.c
 *	  Unit tests of inval_queue.c: reading, and which readers are reset.
 *
 * Guards: messages come in order and whole, or not at all; only readers that
 * are overrun are reset; inserters look when they should and no later.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval_support.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* Guards: a new queue is empty, and has no reader. */
static void
test_init(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();

	assert_int_equal(head_of(queue), 0);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->slots_used), 0);
	assert_counts(queue, 0, 0);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
	{
		assert_int_equal(state_of(queue, slot), HERALD_INVAL_FREE);
		assert_false(herald_inval_is_current(queue, slot));
		assert_int_equal(read_once(queue, slot), -1);
	}
	free(queue);
}

/* Guards: a reader that joins reads only messages that are inserted afterwards. */
static void
test_join(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();

	insert(queue, 5);
	herald_inval_join(queue, 3);
	assert_int_equal(atomic_load(&queue->slots_used), 4);
	assert_int_equal(state_of(queue, 3), HERALD_INVAL_READING);
	assert_int_equal(position_of(queue, 3), 5);
	assert_true(herald_inval_is_current(queue, 3));
	assert_int_equal(read_once(queue, 3), 0);

	insert(queue, 2);
	assert_false(herald_inval_is_current(queue, 3));
	assert_int_equal(read_once(queue, 3), 2);
	assert_int_equal(read_once(queue, 3), 0);
	assert_int_equal(position_of(queue, 3), 7);

	herald_inval_join(queue, 1);
	assert_int_equal(atomic_load(&queue->slots_used), 4);
	assert_int_equal(position_of(queue, 1), 7);
	free(queue);
}

/* Insert `count` messages of one database. */
static void
insert_of(HeraldInvalQueue *queue, uint32_t database, uint32_t count)
{
	HeraldInvalidation messages[HERALD_INVAL_WRITE_QUANTUM];

	while (count > 0)
	{
		uint32_t	n = count < HERALD_INVAL_WRITE_QUANTUM ? count : HERALD_INVAL_WRITE_QUANTUM;

		for (uint32_t i = 0; i < n; i++)
			messages[i] = (HeraldInvalidation) {.database = database};
		(void) herald_inval_insert(queue, messages, n);
		count -= n;
	}
}

/* Guards: a reader that was reset goes on only if nothing of its database was missed. */
static void
test_skip(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];

	herald_inval_join(queue, 0);
	insert_of(queue, 1, 3);
	assert_false(herald_inval_skip(queue, 0, 1));	/* it was not reset */
	assert_int_equal(herald_inval_read(queue, 0, messages), 3);

	/* The last message of database 1 was read, and no other has come since. */
	insert_of(queue, 2, 2 * SIZE);
	assert_int_equal(state_of(queue, 0), HERALD_INVAL_RESET);
	assert_false(herald_inval_skip(queue, 0, 2));
	assert_false(herald_inval_skip(queue, 0, 2 + HERALD_INVAL_DATABASES));
	assert_true(herald_inval_skip(queue, 0, 1));
	assert_int_equal(state_of(queue, 0), HERALD_INVAL_READING);
	assert_true(herald_inval_is_current(queue, 0));

	/* One message among very many, at either end of those missed. */
	for (int at_end = 0; at_end <= 1; at_end++)
	{
		insert_of(queue, at_end ? 2 : 1, at_end ? 2 * SIZE : 1);
		insert_of(queue, at_end ? 1 : 2, at_end ? 1 : 2 * SIZE);
		assert_int_equal(state_of(queue, 0), HERALD_INVAL_RESET);
		assert_false(herald_inval_skip(queue, 0, 1));
		herald_inval_join(queue, 0);
	}
	free(queue);
}

/* Guards: a read returns at most a read quantum, after inserts of every length. */
static void
test_quanta(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();

	herald_inval_join(queue, 0);
	insert(queue, 0);
	assert_int_equal(read_once(queue, 0), 0);
	for (uint32_t count = 1; count <= HERALD_INVAL_WRITE_QUANTUM; count++)
	{
		uint32_t	left = count;

		insert(queue, count);
		for (; left > HERALD_INVAL_READ_QUANTUM; left -= HERALD_INVAL_READ_QUANTUM)
			assert_int_equal(read_once(queue, 0), HERALD_INVAL_READ_QUANTUM);
		assert_int_equal(read_once(queue, 0), left);
		assert_int_equal(read_once(queue, 0), 0);
	}
	free(queue);
}

/* Guards: reading over several laps, in rings of several sizes, beyond 32 bits. */
static void
test_laps(void **state UNUSED)
{
	static const uint32_t sizes[] = {SIZE, 2 * SIZE, HERALD_INVAL_SIZE};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		HeraldInvalQueue *queue = queue_new_of(sizes[i], 2);
		uint64_t	start = UINT64_C(0x700000000) - sizes[i];
		uint64_t	total = 0;

		atomic_store(&queue->head, start);
		herald_inval_join(queue, 1);
		for (uint32_t n = 0; total < 4 * (uint64_t) sizes[i]; n++)
		{
			uint32_t	count = n * 31 % HERALD_INVAL_WRITE_QUANTUM + 1;

			assert_int_equal(insert(queue, count), HERALD_INVAL_NOBODY);
			assert_int_equal(read_all(queue, 1), count);
			total += count;
		}
		assert_int_equal(head_of(queue), start + total);
		assert_counts(queue, 0, 0);
		free(queue);
	}
}

/* Guards: inserters look at 8/16, 9/16 ... 16/16 of the ring, neither before nor after. */
static void
test_thresholds(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();

	herald_inval_join(queue, 2);
	assert_int_equal(insert_singly(queue, HALF - 1), HERALD_INVAL_NOBODY);
	assert_int_equal(queue->look_at, HALF);
	assert_int_equal(insert(queue, 1), 2);
	for (uint32_t full = HALF; full < SIZE; full += QUANTUM)
	{
		assert_int_equal(queue->look_at, full + QUANTUM);
		assert_int_equal(insert_singly(queue, QUANTUM - 1), HERALD_INVAL_NOBODY);
		assert_int_equal(queue->look_at, full + QUANTUM);
		assert_int_equal(insert(queue, 1), HERALD_INVAL_NOBODY);
	}

	/* The ring is full, and nothing is lost yet. */
	assert_int_equal(queue->look_at, SIZE);
	assert_int_equal(state_of(queue, 2), HERALD_INVAL_READING);
	assert_counts(queue, 0, 1);
	assert_int_equal(insert(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(state_of(queue, 2), HERALD_INVAL_RESET);
	assert_int_equal(queue->look_at, SIZE + 1 + HALF);
	assert_counts(queue, 1, 1);
	free(queue);
}

/* Guards: inserts that pass several thresholds, or miss one by one message. */
static void
test_thresholds_in_steps(void **state UNUSED)
{
	static const struct
	{
		uint32_t	behind;		/* before the insert */
		uint32_t	count;
		uint32_t	look_after; /* how full it will be at the next look; 0: no look */
	}			cases[] = {
		{HALF - 1, 1, HALF + QUANTUM},
		{HALF - 2, 1, 0},
		{1, 1, 0},
		{HALF - 1, 64, HALF + QUANTUM},
		{HALF, 64, HALF + 2 * QUANTUM},
		{HALF + QUANTUM - 1, 64, HALF + 2 * QUANTUM},
		{SIZE - QUANTUM - 2, 1, SIZE - QUANTUM},
		{SIZE - QUANTUM - 1, 1, SIZE},
		{SIZE - QUANTUM, 1, SIZE},
		{SIZE - 1, 1, SIZE},
		{SIZE - 64, 64, SIZE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {
			[6] = cases[i].behind
												   });
		uint64_t	position = position_of(queue, 6);
		bool		look = cases[i].look_after != 0;

		queue->look_at = position + HALF;
		assert_int_equal(insert(queue, cases[i].count), look ? 6 : HERALD_INVAL_NOBODY);
		assert_int_equal(queue->look_at, position + (look ? cases[i].look_after : HALF));
		assert_int_equal(state_of(queue, 6), HERALD_INVAL_READING);
		assert_int_equal(read_all(queue, 6), cases[i].behind + cases[i].count);
		free(queue);
	}
}

/* Guards: a look uses the readers' positions at that time, and does not count free slots. */
static void
test_looks_are_rare(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();

	assert_int_equal(insert_singly(queue, HALF), HERALD_INVAL_NOBODY);
	assert_int_equal(queue->look_at, 2 * HALF);
	herald_inval_join(queue, 0);
	herald_inval_join(queue, 1);
	insert_singly(queue, HALF - 10);
	assert_int_equal(queue->look_at, 2 * HALF);
	assert_int_equal(read_all(queue, 0), HALF - 10);
	for (int i = 0; i < 3; i++)
		assert_int_equal(read_once(queue, 1), HERALD_INVAL_READ_QUANTUM);
	insert(queue, 10);
	assert_int_equal(queue->look_at, position_of(queue, 1) + HALF);

	assert_int_equal(herald_inval_leave(queue, 1), HERALD_INVAL_NOBODY);
	read_all(queue, 0);
	insert_singly(queue, 3 * QUANTUM);
	assert_int_equal(queue->look_at, 2 * HALF + HALF);
	assert_counts(queue, 0, 0);
	free(queue);
}

/* Guards: exactly the readers that have not read an overwritten message are reset. */
static void
test_only_the_overrun(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {
		SIZE, SIZE - 1, SIZE - 9, SIZE - 10, SIZE - 11, HALF, 0, 1
											   });

	insert(queue, 10);
	assert_int_equal(state_of(queue, 0), HERALD_INVAL_RESET);
	assert_int_equal(state_of(queue, 1), HERALD_INVAL_RESET);
	assert_int_equal(state_of(queue, 2), HERALD_INVAL_RESET);
	assert_counts(queue, 3, 1);
	assert_int_equal(read_all(queue, 3), SIZE);
	assert_int_equal(read_all(queue, 4), SIZE - 1);
	assert_int_equal(read_all(queue, 5), HALF + 10);
	assert_int_equal(state_of(queue, 6), HERALD_INVAL_FREE);
	assert_int_equal(read_all(queue, 7), 11);
	assert_counts(queue, 3, 1);
	free(queue);
}

/* Guards: a reader that was reset gets -1 until it joins again, and no longer counts. */
static void
test_reset(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {SIZE});

	assert_int_equal(insert(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(queue->look_at, HIGH_POSITION + 1 + HALF);
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(read_once(queue, 0), -1);
		assert_false(herald_inval_is_current(queue, 0));
		assert_int_equal(insert_singly(queue, SIZE), HERALD_INVAL_NOBODY);
	}
	assert_counts(queue, 1, 0);

	herald_inval_join(queue, 0);
	assert_int_equal(read_once(queue, 0), 0);
	insert(queue, 3);
	assert_int_equal(read_all(queue, 0), 3);
	free(queue);
}

/* Guards: a reader that keeps up is never reset, whatever other readers do. */
static void
test_who_keeps_up(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();
	uint64_t	resets = 0;

	for (uint32_t slot = 0; slot < SLOTS; slot++)
		herald_inval_join(queue, slot);
	for (uint32_t i = 0; i < 50 * SIZE; i += 64)
	{
		insert(queue, 64);
		read_all(queue, 4);

		/* The others read little, and join again when they are reset. */
		for (uint32_t slot = 0; slot < SLOTS; slot++)
		{
			if (slot != 4 && i / 64 % (slot + 2) == 0 && read_once(queue, slot) == -1)
			{
				herald_inval_join(queue, slot);
				resets++;
			}
		}
	}
	assert_true(resets > 0);
	assert_true(atomic_load(&queue->resets) >= resets);
	assert_int_equal(state_of(queue, 4), HERALD_INVAL_READING);
	free(queue);
}

/* Guards: every slot counts, also the last and the only one, in rings of several sizes. */
static void
test_all_slots(void **state UNUSED)
{
	static const uint32_t slots[] = {1, 2, 200};
	static const uint32_t sizes[] = {SIZE, HERALD_INVAL_SIZE};

	for (size_t i = 0; i < 6; i++)
	{
		uint32_t	count = slots[i % 3];
		uint32_t	size = sizes[i / 3];
		HeraldInvalQueue *queue = queue_new_of(size, count);

		/* The later a reader joins, the less it is behind. */
		for (uint32_t slot = 0; slot < count; slot++)
		{
			herald_inval_join(queue, slot);
			insert(queue, 1);
		}
		queue->look_at = size;	/* a single check */
		assert_int_equal(insert_singly(queue, size - count), 0);
		for (uint32_t slot = 0; slot < count; slot++)
		{
			assert_int_equal(read_all(queue, slot), size - slot);
			assert_int_equal(herald_inval_caught_up(queue, slot),
							 slot + 1 < count ? (int32_t) slot + 1 : HERALD_INVAL_NOBODY);
		}
		queue->look_at = head_of(queue) + size + 1; /* when all are overrun */
		assert_int_equal(insert_singly(queue, size + 1), HERALD_INVAL_NOBODY);
		assert_counts(queue, count, count);
		free(queue);
	}
}

/* The inserts that interrupt a read, and their queue. */
static HeraldInvalQueue *interrupted_queue;
static uint32_t interrupted_inserts;
static void *interrupted_page;

static void
on_page_fault(int number UNUSED)
{
	if (mprotect(interrupted_page, (size_t) sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) != 0)
		abort();
	insert_singly(interrupted_queue, interrupted_inserts);
}

/*
 * A read whose 9th message goes to a page that is not accessible yet: the page fault
 * inserts `inserts` messages, then the read goes on.  Returns what herald_inval_read() does.
 */
static int
read_interrupted(HeraldInvalQueue *queue, uint32_t inserts, HeraldInvalidation *copy)
{
	size_t		page = (size_t) sysconf(_SC_PAGESIZE);
	char	   *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
							  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	HeraldInvalidation *messages = (HeraldInvalidation *) (memory + page) - 8;
	struct sigaction action = {.sa_handler = on_page_fault};
	struct sigaction old_action;
	int			result;

	assert_true(memory != MAP_FAILED);
	interrupted_queue = queue;
	interrupted_inserts = inserts;
	interrupted_page = memory + page;
	assert_int_equal(mprotect(interrupted_page, page, PROT_NONE), 0);
	assert_int_equal(sigaction(SIGSEGV, &action, &old_action), 0);
	result = herald_inval_read(queue, 0, messages);
	assert_int_equal(sigaction(SIGSEGV, &old_action, NULL), 0);
	memcpy(copy, messages, HERALD_INVAL_READ_QUANTUM * sizeof(*copy));
	munmap(memory, 2 * page);
	return result;
}

/* Guards: messages that are overwritten in the middle of a read are not taken for read. */
static void
test_overwritten_while_read(void **state UNUSED)
{
	/* how far the reader is behind, and how many messages are inserted meanwhile */
	static const struct
	{
		uint32_t	behind;
		uint32_t	inserts;
		bool		intact;
	}			cases[] = {
		{100, 1, true},
		{100, SIZE - 100, true},
		{100, SIZE - 99, false},
		{100, SIZE, false},
		{100, 3 * SIZE, false},
		{SIZE, 0, true},
		{SIZE, 1, false},
		{SIZE, 20, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {cases[i].behind});
		HeraldInvalidation copy[HERALD_INVAL_READ_QUANTUM];
		uint64_t	position = position_of(queue, 0);
		int			result = read_interrupted(queue, cases[i].inserts, copy);

		assert_int_equal(head_of(queue), HIGH_POSITION + cases[i].inserts);
		assert_int_equal(result, cases[i].intact ? HERALD_INVAL_READ_QUANTUM : -1);
		for (int n = 0; n < result; n++)
		{
			HeraldInvalidation expected = message_for(position + (uint64_t) n);

			assert_memory_equal(&copy[n], &expected, sizeof(expected));
		}
		if (!cases[i].intact)
			assert_int_equal(read_once(queue, 0), -1);
		free(queue);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_quanta),
		cmocka_unit_test(test_laps),
		cmocka_unit_test(test_thresholds),
		cmocka_unit_test(test_thresholds_in_steps),
		cmocka_unit_test(test_looks_are_rare),
		cmocka_unit_test(test_only_the_overrun),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_who_keeps_up),
		cmocka_unit_test(test_all_slots),
		cmocka_unit_test(test_overwritten_while_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
