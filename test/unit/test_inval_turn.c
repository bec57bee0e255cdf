/*-------------------------------------------------------------------------
 *
 * test_inval_turn.c
 *	  Unit tests of inval_queue.c: which reader has the turn to catch up.
 *
 * Guards: one reader at a time has the turn, the furthest behind first; the turn is
 * handed on, and is neither lost nor held up by a reader that does not move: the next check
 * takes it back.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval_support.h"

/* Guards: the turn goes to the furthest behind, then to the next, one at a time, and ends. */
static void
test_turn(void **state UNUSED)
{
	static const uint32_t chain[] = {3, 0, 7, 5, 2};
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {
		900, 10, HALF, 950, HALF - 1, 600, 0, 800
	});

	/* An insert of no message looks after the readers, too. */
	assert_int_equal(insert(queue, 0), 3);
	for (size_t i = 0; i < sizeof(chain) / sizeof(chain[0]); i++)
	{
		uint64_t	turn = herald_inval_turn(queue);

		assert_int_equal(turn_of(queue), chain[i]);
		assert_counts(queue, 0, i + 1);

		/* Neither another look nor another reader changes the turn of one that moves. */
		assert_int_equal(read_once(queue, chain[i]), HERALD_INVAL_READ_QUANTUM);
		queue->look_at = 0;
		assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
		assert_int_equal(herald_inval_caught_up(queue, 1), HERALD_INVAL_NOBODY);
		assert_true(herald_inval_turn(queue) == turn);

		read_all(queue, chain[i]);
		assert_int_equal(herald_inval_caught_up(queue, chain[i]),
						 i + 1 < sizeof(chain) / sizeof(chain[0]) ? (int32_t) chain[i + 1] :
						 HERALD_INVAL_NOBODY);
		assert_true(herald_inval_turn(queue) != turn);
	}
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);

	/* After one more message another reader is far behind: noticed at the next look only. */
	queue->look_at = UINT64_MAX;
	assert_int_equal(insert(queue, 1), HERALD_INVAL_NOBODY);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), 4);
	assert_counts(queue, 0, 6);
	free(queue);
}

/* Guards: a reader ahead of the head that was read to hand on the turn is not far behind. */
static void
test_ahead_of_the_head(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {700, 10});

	assert_int_equal(insert(queue, 0), 0);
	atomic_store(&queue->readers[1].word, (HIGH_POSITION + 40) << 2 | HERALD_INVAL_READING);
	atomic_store(&queue->readers[0].word, HIGH_POSITION << 2 | HERALD_INVAL_READING);
	assert_int_equal(herald_inval_caught_up(queue, 0), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);
	free(queue);
}

/* Guards: a reader that leaves, or is reset, does not keep the turn. */
static void
test_turn_does_not_get_lost(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {900, 800, 0, SIZE, 700});

	assert_int_equal(insert(queue, 0), 3);
	assert_int_equal(herald_inval_leave(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), 3);
	assert_int_equal(state_of(queue, 1), HERALD_INVAL_FREE);

	/* The holder is overrun, and leaves only later. */
	queue->look_at = 0;
	assert_int_equal(insert(queue, 1), 0);
	assert_int_equal(state_of(queue, 3), HERALD_INVAL_RESET);
	assert_int_equal(herald_inval_caught_up(queue, 3), HERALD_INVAL_NOBODY);
	assert_int_equal(herald_inval_leave(queue, 3), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), 0);

	assert_int_equal(herald_inval_leave(queue, 0), 4);
	assert_int_equal(herald_inval_leave(queue, 4), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);
	assert_int_equal(herald_inval_leave(queue, 4), HERALD_INVAL_NOBODY);
	assert_counts(queue, 1, 3);
	free(queue);
}

/* Guards: exactly the turn that was seen is taken back, no other, and none that is free. */
static void
test_rescue(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {900, 800});
	uint64_t	first;
	uint64_t	second;

	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), HERALD_INVAL_NOBODY);
	assert_int_equal(insert(queue, 0), 0);
	first = herald_inval_turn(queue);
	read_all(queue, 0);
	assert_int_equal(herald_inval_caught_up(queue, 0), 1);
	assert_int_equal(herald_inval_rescue(queue, first), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 0);
	assert_int_equal(turn_of(queue), 1);

	/* The same holder again, but not the same turn. */
	assert_int_equal(herald_inval_leave(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(insert_singly(queue, HALF), 0);
	second = herald_inval_turn(queue);
	assert_true(second != first && (uint32_t) second == (uint32_t) first);
	assert_int_equal(herald_inval_rescue(queue, first), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), 0);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 0);

	assert_int_equal(herald_inval_rescue(queue, second), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 1);

	/* Once more: too late, and the stuck mark stays. */
	assert_int_equal(herald_inval_rescue(queue, second), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 1);
	free(queue);
}

/* Guards: inserters, readers and a rescue pass over a reader that is stuck. */
static void
test_stuck(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {900, 800, 700});

	assert_int_equal(insert(queue, 0), 0);
	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), 1);
	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), 2);
	read_all(queue, 2);
	assert_int_equal(herald_inval_caught_up(queue, 2), HERALD_INVAL_NOBODY);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);

	/* Stuck readers still count for the next look: they are not overwritten unnoticed. */
	assert_true(queue->look_at <= position_of(queue, 0) + SIZE);

	/* Reading a little ends being stuck... */
	assert_int_equal(read_once(queue, 1), HERALD_INVAL_READ_QUANTUM);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), 1);
	read_all(queue, 1);
	assert_int_equal(herald_inval_caught_up(queue, 1), HERALD_INVAL_NOBODY);

	/* ...but having the turn without reading does not. */
	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 1);
	read_all(queue, 0);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 0);
	assert_counts(queue, 0, 4);
	free(queue);
}

/* Guards: joining, and catching up, end being stuck, even if it is marked late. */
static void
test_stuck_no_longer(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {SIZE, 600});

	atomic_store(&queue->readers[0].stuck, 1);
	atomic_store(&queue->readers[1].stuck, 1);
	assert_int_equal(insert(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(read_once(queue, 0), -1);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 1);
	herald_inval_join(queue, 0);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 0);

	read_all(queue, 1);
	atomic_store(&queue->readers[1].stuck, 1);
	assert_int_equal(herald_inval_caught_up(queue, 1), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->readers[1].stuck), 0);
	free(queue);
}

/* Guards: a check takes the turn back if its holder has read nothing since the last check, and only then. */
static void
test_not_moved(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new_behind((uint32_t[SLOTS]) {900, 800, 700});

	assert_int_equal(insert(queue, 0), 0);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), 1);
	assert_int_equal(atomic_load(&queue->readers[0].stuck), 1);
	assert_int_equal(atomic_load(&queue->rescues), 1);

	/* One that reads slowly keeps it. */
	for (int i = 0; i < 3; i++)
	{
		assert_int_equal(read_once(queue, 1), HERALD_INVAL_READ_QUANTUM);
		queue->look_at = 0;
		assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
		assert_int_equal(turn_of(queue), 1);
	}

	/* A turn that was handed on since has its time until the check after the next. */
	read_all(queue, 1);
	assert_int_equal(herald_inval_caught_up(queue, 1), 2);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), 2);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), HERALD_INVAL_NOBODY);
	assert_int_equal(atomic_load(&queue->rescues), 2);
	assert_counts(queue, 0, 3);

	/* A new turn of the same reader, at the same place, is not the old one. */
	assert_int_equal(read_once(queue, 2), HERALD_INVAL_READ_QUANTUM);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), 2);
	atomic_store(&queue->readers[0].stuck, 0);
	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), 0);
	atomic_store(&queue->readers[2].stuck, 0);
	assert_int_equal(herald_inval_rescue(queue, herald_inval_turn(queue)), 2);
	queue->look_at = 0;
	assert_int_equal(insert(queue, 0), HERALD_INVAL_NOBODY);
	assert_int_equal(turn_of(queue), 2);
	assert_int_equal(atomic_load(&queue->rescues), 4);
	free(queue);
}

/* Guards: each sixteenth of the ring brings a check; so the readers behind one that does not move are signalled in time. */
static void
test_rescued_in_time(void **state UNUSED)
{
	HeraldInvalQueue *queue = queue_new();
	const uint32_t chain[] = {0, 1, 2};

	for (uint32_t slot = 0; slot < 3; slot++)
		herald_inval_join(queue, slot);
	assert_int_equal(insert_singly(queue, HALF), 0);
	for (size_t i = 1; i < sizeof(chain) / sizeof(chain[0]); i++)
		assert_int_equal(insert_singly(queue, QUANTUM), chain[i]);
	read_all(queue, 2);
	assert_int_equal(herald_inval_caught_up(queue, 2), HERALD_INVAL_NOBODY);
	assert_counts(queue, 0, 3);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turn),
		cmocka_unit_test(test_ahead_of_the_head),
		cmocka_unit_test(test_turn_does_not_get_lost),
		cmocka_unit_test(test_rescue),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_stuck_no_longer),
		cmocka_unit_test(test_not_moved),
		cmocka_unit_test(test_rescued_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
