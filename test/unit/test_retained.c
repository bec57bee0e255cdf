/*-------------------------------------------------------------------------
 *
 * test_retained.c
 *	  Unit tests of retention.c: segments retained for sessions that come back.
 *
 * Guards: segments that no listener needs are saved within their own limit, deleted
 * before any that is needed, and it is known where they begin; a session that asks
 * for them has them kept from then on, or learns at once that they are gone.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "retention_support.h"

#define ME			7u

/* Three segments may be retained, or large files in place of them. */
static int
setup_retained(void **state)
{
	(void) setup(state);
	world.limits.retain_max = 3 * world.size;
	return 0;
}

static bool
hold(uint32_t slot, HeraldPosition position)
{
	HeraldPosition had_read;

	return herald_retention_hold(&world.spiller, slot, UINT64_MAX, position, &had_read);
}

static HeraldPosition
kept_from(void)
{
	return herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX);
}

/* Guards: if retain_max is 0 only the ring is retained. */
static void
test_ring_alone(void **state UNUSED)
{
	world.limits.retain_max = 0;
	assert_int_equal(kept_from(), border(0));
	assert_true(move());
	assert_int_equal(world.saves, 0);
	assert_int_equal(kept_from(), border(1));
}

/* Guards: the latest segments are retained, up to the limit; no listener loses anything. */
static void
test_limit(void **state UNUSED)
{
	for (int i = 1; i <= 10; i++)
	{
		assert_true(move());
		assert_int_equal(atomic_load(&world.queue->tail), border(i));
		assert_int_equal(kept_from(), border(i > 3 ? i - 3 : 0));
		assert_true(herald_retention_bytes(&world.retention) <= world.limits.retain_max);
	}
	assert_int_equal(world.saves, 10);
	assert_int_equal(world.dropped, 0);
	assert_int_equal(atomic_load(&world.queue->lost), 0);

	/* The limit is lowered. */
	world.limits.retain_max = 0;
	trim();
	assert_int_equal(herald_retention_bytes(&world.retention), 0);
	assert_int_equal(kept_from(), border(10));
}

/*
 * Guards: segments that a listener needs displace those that none needs, not the other way
 * round.
 */
static void
test_backlog_comes_first(void **state UNUSED)
{
	world.limits = (HeraldRetentionLimits) {4 * world.size, 3 * world.size};
	for (int i = 0; i < 5; i++)
		assert_true(move());
	set_listener(ME, border(5), HERALD_LISTENER_PENDING);
	for (int i = 6; i <= 9; i++)
	{
		assert_true(move());
		assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 0);
	}
	assert_int_equal(kept_from(), border(5));
	assert_int_equal(herald_retention_bytes(&world.retention), 4 * world.size);
	assert_int_equal(world.dropped, 0);

	/* Only then the listener loses its oldest.  Now none needs the rest: the next spiller trims it. */
	assert_true(move());
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(kept_from(), border(6));
	trim();
	assert_int_equal(kept_from(), border(8));
}

/* Guards: a segment that cannot be saved is not retained, and nothing is given up for it. */
static void
test_disk_is_full(void **state UNUSED)
{
	assert_true(move());
	world.fail = 1;
	assert_true(move());
	assert_int_equal(world.removes, 1);	/* the incomplete file */
	assert_int_equal(kept_from(), border(2));
	assert_true(move());
	assert_int_equal(kept_from(), border(2));
	assert_int_equal(world.removes, 2);	/* the one before the gap */
	assert_int_equal(world.dropped, 0);
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 0);
}

/*
 * Guards: for a session that comes in time, all from its position on is kept, in the ring
 * or saved.
 */
static void
test_hold(void **state UNUSED)
{
	HeraldPosition had_read = 0;

	for (int i = 0; i < 3; i++)
		assert_true(move());
	assert_true(herald_retention_hold(&world.spiller, ME, UINT64_MAX, border(1), &had_read));
	assert_int_equal(had_read, atomic_load(&world.queue->settled));
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), border(1) | HERALD_LISTENER_BUSY_PENDING);

	/* It still needs the older position; a newer one changes nothing. */
	assert_true(hold(ME, border(2)));
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), border(1) | HERALD_LISTENER_BUSY_PENDING);
	world.limits.retain_max = 0;
	trim();
	for (int i = 0; i < 10; i++)
		assert_true(move());
	assert_int_equal(kept_from(), border(1));
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 0);
}

/*
 * Guards: a position beyond `settled`, as herald.read() returns it, leaves out nothing of
 * other channels.
 */
static void
test_hold_beyond(void **state UNUSED)
{
	HeraldPosition settled = atomic_load(&world.queue->settled);
	HeraldPosition had_read = 0;

	atomic_store(&world.queue->dispatched, settled + 8);
	assert_true(herald_retention_hold(&world.spiller, ME, UINT64_MAX, settled + 8, &had_read));
	assert_int_equal(had_read, settled);
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), settled | HERALD_LISTENER_BUSY_PENDING);
}

/* Guards: for a session that comes too late the answer is false, and its word has not changed. */
static void
test_too_late(void **state UNUSED)
{
	uint64_t	word = atomic_load(herald_wakeup_word(world.wakeup, ME));

	for (int i = 0; i < 4; i++)
		assert_true(move());
	assert_false(hold(ME, border(1) - 8));
	assert_false(hold(ME, world.start));
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), word);
	assert_true(hold(ME, border(1)));
}

/*
 * Guards: large files are retained with segments; where one is removed, its channels are
 * complete only after it.
 */
static void
test_large(void **state UNUSED)
{
	add_large(border(0) + 8, world.size, 1);
	add_large(border(2) + 8, world.size, 2);
	trim();
	assert_int_equal(herald_large_table_count(world.large), 2);
	assert_int_equal(kept_from(), border(0));
	world.limits.retain_max = 2 * world.size;
	trim();
	assert_int_equal(herald_large_table_count(world.large), 1);
	assert_int_equal(kept_from(), border(0) + 16);
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, 1), border(0) + 16);
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, ~UINT64_C(1)), border(0));
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, 0), border(0));
	assert_false(hold(ME, border(0) + 8));
	assert_true(hold(ME, border(0) + 16));

	/* It is needed now, so it is not deleted; but it is given up to make place for another. */
	world.limits.retain_max = 0;
	trim();
	assert_int_equal(herald_large_table_count(world.large), 1);
	assert_true(herald_retention_give_up_oldest_large(&world.spiller));
	assert_int_equal(world.dropped, 1);
	assert_int_equal(kept_from(), border(2) + 16);
	assert_false(herald_retention_give_up_oldest_large(&world.spiller));
}

#define retained_test(f)	cmocka_unit_test_setup_teardown(f, setup_retained, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		retained_test(test_ring_alone),
		retained_test(test_limit),
		retained_test(test_backlog_comes_first),
		retained_test(test_disk_is_full),
		retained_test(test_hold),
		retained_test(test_hold_beyond),
		retained_test(test_too_late),
		retained_test(test_large),
	};

	return cmocka_run_group_tests_name("retained", tests, NULL, NULL);
}
