/*-------------------------------------------------------------------------
 *
 * test_retention.c
 *	  Unit tests of retention.c: what is saved, deleted, given up, and when.
 *
 * Guards: a segment is saved only if a listener needs it, counts as saved only
 * when all of it is, and is deleted when no listener needs it; past the limit and
 * after errors the oldest is given up, and the listeners concerned are reported.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "retention_support.h"

/* The saved stretch, in segments from the first; all of it is kept, and nothing else. */
static void
assert_saved(int from, int to)
{
	assert_int_equal(herald_retention_bytes(&world.retention), (uint64_t) (to - from) * world.size);
	assert_int_equal(world.kept_count, to - from);
	for (int i = 0; i < 2 * HERALD_SEGMENTS; i++)
		assert_int_equal(herald_retention_has(&world.retention, border(i)), i >= from && i < to);
}

/* Guards: a segment that no listener needs is not saved, only recycled. */
static void
test_nobody(void **state UNUSED)
{
	assert_true(move());
	assert_int_equal(atomic_load(&world.queue->tail), border(1));
	assert_int_equal(world.saves, 0);
	assert_saved(1, 1);

	/* Nor does it count as given up if nothing may be saved. */
	world.limits.bytes_max = 0;
	assert_true(move());
	assert_int_equal(world.dropped, 0);
	assert_int_equal(atomic_load(&world.queue->lost), 0);
}

/* Guards: a segment is not moved while it is written or dispatched, or if there is room. */
static void
test_not_yet(void **state UNUSED)
{
	HeraldPosition settled = atomic_load(&world.queue->settled);

	atomic_store(&world.queue->settled, border(1) - 8);
	assert_false(move());
	atomic_store(&world.queue->settled, border(1));
	assert_true(move());
	atomic_store(&world.queue->settled, settled);
	assert_true(herald_queue_recycle(world.queue, border(4)));
	assert_true(move());
	assert_int_equal(atomic_load(&world.queue->tail), border(4));
	assert_int_equal(world.saves, 0);
}

/*
 * Guards: while a segment is being recycled, a process that looks finds room in the making: it
 * does not take the next segment, which may settle much later, for the one to wait for.
 */
static void
test_being_recycled(void **state UNUSED)
{
	atomic_store(&world.queue->settled, border(2) - 8);
	assert_true(herald_retention_can_move(world.queue));

	/* As herald_queue_recycle() does it: the tail, then zeros, then the limit. */
	atomic_store(&world.queue->tail, border(1));
	assert_true(herald_queue_is_short(world.queue));
	assert_true(herald_retention_can_move(world.queue));
	atomic_store(&world.queue->limit, border(1) + world.queue->ring_size);
	assert_false(herald_retention_can_move(world.queue));

	/* The next segment, in which something is not settled. */
	atomic_store(&world.queue->head, border(9));
	assert_false(herald_retention_can_move(world.queue));
	atomic_store(&world.queue->settled, border(2));
	assert_true(herald_retention_can_move(world.queue));
}

/* Guards: each segment is kept for a laggard until it has read it. */
static void
test_laggard(void **state UNUSED)
{
	set_listener(99, border(0) + 800, HERALD_LISTENER_BUSY_PENDING);
	for (int i = 1; i <= 12; i++)
	{
		assert_true(move());
		assert_int_equal(atomic_load(&world.queue->tail), border(i));
		assert_saved(0, i);
	}
	trim();
	assert_saved(0, 12);
	set_listener(99, border(1) - 8, HERALD_LISTENER_PROCESSING);
	trim();
	assert_saved(0, 12);
	set_listener(99, border(1), HERALD_LISTENER_PROCESSING);
	trim();
	assert_saved(1, 12);
	set_listener(99, border(7) + 8, HERALD_LISTENER_PROCESSING);
	assert_true(move());
	assert_saved(7, 13);
	set_listener(99, border(13), HERALD_LISTENER_PROCESSING);
	trim();
	assert_saved(13, 13);
	assert_int_equal(world.dropped, 0);

	/* The laggard has reached the ring: a new stretch begins where it is. */
	assert_true(move());
	assert_saved(13, 14);
}

/* Guards: past the limit the oldest goes, and only the listeners that needed it are overrun. */
static void
test_limit(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	set_listener(98, border(1), HERALD_LISTENER_PENDING);
	set_listener(97, border(0), HERALD_LISTENER_IDLE);
	world.limits.bytes_max = 3 * world.size + 8;
	for (int i = 1; i <= 3; i++)
		assert_true(move());
	assert_saved(0, 3);
	assert_int_equal(world.dropped, 0);

	assert_true(move());
	assert_saved(1, 4);
	assert_int_equal(world.dropped, 1);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(world.overrun_slot, 99);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	/*
	 * The listener is not counted twice.  Then none is left that needs a saved segment, but the
	 * segment for which there is room now is saved.
	 */
	assert_true(move());
	assert_saved(2, 5);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 2);
	assert_int_equal(world.overrun_slot, 98);

	/* The rest is deleted, and no listener loses anything. */
	assert_true(move());
	assert_saved(6, 6);
	assert_int_equal(world.dropped, 2);
}

/* Guards: if nothing may be saved, the ring's oldest segment is given up at once. */
static void
test_no_room_at_all(void **state UNUSED)
{
	set_listener(99, border(0) + 8, HERALD_LISTENER_AGAIN);
	world.limits.bytes_max = world.size - 8;
	assert_true(move());
	assert_int_equal(world.saves, 0);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));
	assert_int_equal(atomic_load(&world.queue->tail), border(1));
	assert_saved(1, 1);
}

/* Guards: if a segment cannot be saved, the oldest are deleted until it can, and no more. */
static void
test_errors(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	set_listener(98, border(2), HERALD_LISTENER_PENDING);
	for (int i = 1; i <= 3; i++)
		assert_true(move());
	world.fail = 2;
	assert_true(move());
	assert_int_equal(world.saves, 3 + 3);
	assert_saved(2, 4);
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 1);
	assert_int_equal(world.overrun_slot, 99);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	/*
	 * If it never can, all saved segments are given up, and the segment itself, which is
	 * recycled.
	 */
	set_listener(97, border(3), HERALD_LISTENER_PENDING);
	set_listener(96, border(4), HERALD_LISTENER_PENDING);
	world.fail = 100;
	assert_true(move());
	assert_int_equal(world.fail, 100 - 3);
	assert_saved(5, 5);
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 4);
	assert_int_equal(atomic_load(&world.queue->lost), border(5));
	assert_int_equal(world.failed, 0);	/* its incomplete file is deleted, too */

	/* No listener is left that needs anything. */
	assert_true(move());
	assert_int_equal(world.fail, 100 - 3);
}

/*
 * Guards: on a full disk no more than necessary is given up: a segment that goes for the
 * limit, or because no listener needs it, makes room once it is deleted.
 */
static void
test_full_disk(void **state UNUSED)
{
	world.disk_segments = 3;
	world.limits.bytes_max = 3 * world.size;
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	set_listener(98, border(1), HERALD_LISTENER_PENDING);
	for (int i = 1; i <= 3; i++)
		assert_true(move());
	assert_true(move());
	assert_saved(1, 4);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(world.overrun_slot, 99);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	/* No listener needs the segments before the other's position. */
	world.limits.bytes_max = NO_LIMIT;
	set_listener(98, border(2), HERALD_LISTENER_PENDING);
	assert_true(move());
	assert_saved(2, 5);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	assert_true(move());
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 1);
	assert_int_equal(world.overrun_slot, 98);
}

/*
 * Guards: the oldest large file is given up for the limit, and only listeners that get there
 * miss it; not before all of its listeners are marked.
 */
static void
test_large_file(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	world.limits.bytes_max = 3 * world.size;
	add_large(border(0) + 8, world.size, 1);
	add_large(atomic_load(&world.queue->settled), world.size, 1);
	trim();
	assert_int_equal(world.large_bytes, 0);

	assert_true(herald_retention_leave_room(&world.spiller, world.size + 8, &world.limits));
	assert_int_equal(world.large_bytes, world.size);
	assert_int_equal(world.dropped, 1);
	assert_int_equal(atomic_load(&world.queue->lost), 0);
	assert_false(herald_retention_leave_room(&world.spiller, 2 * world.size + 8, &world.limits));
	assert_false(herald_retention_give_up_oldest(&world.spiller));
	assert_false(herald_retention_give_up_oldest_large(&world.spiller));
	assert_int_equal(world.large_bytes, world.size);

	/* It counts for the limit, so that segments have the rest. */
	assert_true(move());
	assert_true(move());
	assert_saved(0, 2);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 0);
	assert_true(move());
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(herald_large_table_count(world.large), 1);
}

/* Guards: files of open transactions stay; those of transactions that rolled back do not. */
static void
test_large_rolled_back(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	add_large(HERALD_NOT_PLACED, 16, 0);
	add_large(0, 32, 0);
	trim();
	assert_int_equal(world.large_bytes, 32);
	assert_int_equal(herald_large_table_count(world.large), 1);
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX), border(0));
	assert_int_equal(world.dropped, 0);

	world.limits.bytes_max = 16;
	trim();
	world.limits.bytes_max = 8;
	assert_false(herald_retention_leave_room(&world.spiller, 0, &world.limits));
	assert_int_equal(world.large_bytes, 32);
}

#define world_test(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(test_nobody),
		world_test(test_not_yet),
		world_test(test_being_recycled),
		world_test(test_laggard),
		world_test(test_limit),
		world_test(test_no_room_at_all),
		world_test(test_errors),
		world_test(test_full_disk),
		world_test(test_large_file),
		world_test(test_large_rolled_back),
	};

	return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
