/*-------------------------------------------------------------------------
 *
 * test_retained.c
 *	  Unit tests of retention.c: segments retained for sessions that come back.
 *
 * Guards: segments that no listener needs are saved within their own limit, deleted
 * before any that is needed, and it is known where they begin; a session that asks
 * for them has them kept from then on, or gets HERALD_HOLD_GONE at once.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wakeup_support.h"

#include "retention.h"

#define NO_LIMIT	UINT64_MAX
#define ME			7u
#define OTHERS_MAX	8

static struct
{
	HeraldQueue  *queue;
	HeraldWakeup *wakeup;
	HeraldRetention retention;
	HeraldRetentionLimits limits;
	HeraldPosition start;
	uint64_t	size;			/* of a segment */
	bool		fail;			/* nothing can be saved */
	uint32_t	comes;			/* a session that needs `comes_for` during the next save; 0: none */
	HeraldPosition comes_for;
	bool		fill;			/* others fill the free room when the next one is deleted */
	bool		border_taken;	/* another process has the border lock from the next save on */
	struct
	{
		HeraldPosition position;
		uint64_t	bytes;
	}			others[OTHERS_MAX];
	int			others_used;
	int			others_removed;
	int			saves;
	int			removes;
	int			dropped;
	int			overruns;
}			world;

static HeraldHoldResult
hold(uint32_t slot, HeraldPosition position)
{
	HeraldPosition had_read;

	return herald_retention_hold(&world.retention, world.queue, world.wakeup, slot, UINT64_MAX, position, &had_read);
}

static bool
save(HeraldPosition segment)
{
	assert_int_equal(segment, atomic_load(&world.queue->tail));
	world.saves++;
	if (world.comes != 0)
		assert_int_equal(hold(world.comes, world.comes_for), HERALD_HOLD_DONE);
	world.comes = 0;
	if (world.border_taken)
		assert_true(herald_queue_lock_border(world.queue));
	world.border_taken = false;
	return !world.fail;
}

/* Fill the ring until it is short of room again. */
static void
fill(void)
{
	leave_in_segment(world.queue, 0);
	batch_send(world.queue, "a little more");
	dispatch_all(world.queue);
}

static void
forget(HeraldPosition segment UNUSED)
{
	world.removes++;
	if (world.fill)
		fill();
	world.fill = false;
}

static bool
is_removing(void)
{
	return false;
}

static void
note_dropped(void)
{
	world.dropped++;
}

static void
note_overrun(uint32_t slot UNUSED, HeraldOverrunReason reason UNUSED)
{
	world.overruns++;
}

static uint64_t
others_bytes_between(HeraldPosition from, HeraldPosition to)
{
	uint64_t	bytes = 0;

	for (int i = 0; i < world.others_used; i++)
		if (world.others[i].position >= from && world.others[i].position < to)
			bytes += world.others[i].bytes;
	return bytes;
}

static uint64_t
others_bytes(void)
{
	return others_bytes_between(0, UINT64_MAX);
}

static HeraldPosition
others_oldest(void)
{
	return world.others_used > 0 ? world.others[0].position : UINT64_MAX;
}

/*
 * The first one removed is on channels of the first set, each later one on those of the
 * next set.
 */
static void
others_remove(HeraldPosition below, HeraldPosition removed[HERALD_CHANNEL_SETS])
{
	while (world.others_used > 0 && world.others[0].position < below)
	{
		removed[world.others_removed++] = world.others[0].position;
		memmove(&world.others[0], &world.others[1], sizeof(world.others) - sizeof(world.others[0]));
		world.others_used--;
	}
}

static const HeraldRetentionCalls calls = {
	.save = save,
	.remove = forget,
	.removing = is_removing,
	.dropped = note_dropped,
	.overrun = note_overrun,
	.others_bytes = others_bytes,
	.others_bytes_between = others_bytes_between,
	.others_oldest = others_oldest,
	.others_remove = others_remove,
};

/* Seven segments full of settled batches, and less than one left; no listener needs it. */
static int
setup(void **state UNUSED)
{
	memset((void *) &world, 0, sizeof(world));
	world.queue = log_new();
	world.size = world.queue->segment_size;
	world.start = atomic_load(&world.queue->tail);
	world.limits = (HeraldRetentionLimits) {NO_LIMIT, 3 * world.size};
	world.wakeup = wakeup_new_idle(SLOTS, 1, world.start);
	for (int i = 0; i < HERALD_SEGMENTS - 1; i++)
		leave_in_segment(world.queue, 0);
	batch_send(world.queue, "a little more");
	dispatch_all(world.queue);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		atomic_store(herald_wakeup_word(world.wakeup, slot),
					 atomic_load(&world.queue->settled) | HERALD_LISTENER_BUSY);
	return 0;
}

static int
teardown(void **state UNUSED)
{
	free(world.wakeup);
	free(world.queue);
	return 0;
}

/* The border of a segment, counted from the first. */
static HeraldPosition
border(int segments)
{
	return world.start + (uint64_t) segments * world.size;
}

static HeraldPosition
kept_from(void)
{
	return herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX);
}

/* Move the oldest segment, and fill the room that this makes, to be short again. */
static bool
move(void)
{
	if (herald_retention_move(&world.retention, world.queue, world.wakeup, &world.limits, &calls) !=
		HERALD_RETENTION_ROOM)
		return false;
	if (!herald_queue_is_short(world.queue))
		fill();
	return true;
}

static void
trim(void)
{
	assert_true(herald_retention_leave_room(&world.retention, world.queue, world.wakeup, 0,
											&world.limits, &calls));
}

static void
add_other(HeraldPosition position, uint64_t bytes)
{
	world.others[world.others_used].position = position;
	world.others[world.others_used++].bytes = bytes;
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
	atomic_store(herald_wakeup_word(world.wakeup, ME), border(5) | HERALD_LISTENER_PENDING);
	for (int i = 6; i <= 9; i++)
	{
		assert_true(move());
		assert_int_equal(world.overruns, 0);
	}
	assert_int_equal(kept_from(), border(5));
	assert_int_equal(herald_retention_bytes(&world.retention), 4 * world.size);
	assert_int_equal(world.dropped, 0);

	/* Only then the listener loses its oldest. */
	assert_true(move());
	assert_int_equal(world.overruns, 1);
	assert_int_equal(kept_from(), border(7));
}

/* Guards: a segment that cannot be saved is not retained, and nothing is given up for it. */
static void
test_disk_is_full(void **state UNUSED)
{
	assert_true(move());
	world.fail = true;
	assert_true(move());
	assert_int_equal(world.removes, 1);	/* the incomplete file */
	assert_int_equal(kept_from(), border(2));
	world.fail = false;
	assert_true(move());
	assert_int_equal(kept_from(), border(2));
	assert_int_equal(world.removes, 2);	/* the one before the gap */
	assert_int_equal(world.dropped, 0);
	assert_int_equal(world.overruns, 0);
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
	assert_int_equal(herald_retention_hold(&world.retention, world.queue, world.wakeup, ME, UINT64_MAX, border(1), &had_read),
					 HERALD_HOLD_DONE);
	assert_int_equal(had_read, atomic_load(&world.queue->settled));
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), border(1) | HERALD_LISTENER_BUSY_PENDING);

	/* It still needs the older position; a newer one changes nothing. */
	assert_int_equal(hold(ME, border(2)), HERALD_HOLD_DONE);
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), border(1) | HERALD_LISTENER_BUSY_PENDING);
	world.limits.retain_max = 0;
	trim();
	for (int i = 0; i < 10; i++)
		assert_true(move());
	assert_int_equal(kept_from(), border(1));
	assert_int_equal(world.overruns, 0);
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
	assert_int_equal(herald_retention_hold(&world.retention, world.queue, world.wakeup, ME, UINT64_MAX, settled + 8, &had_read),
					 HERALD_HOLD_DONE);
	assert_int_equal(had_read, settled);
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), settled | HERALD_LISTENER_BUSY_PENDING);
}

/* Guards: a session that comes too late gets HERALD_HOLD_GONE, and its word has not changed. */
static void
test_too_late(void **state UNUSED)
{
	uint64_t	word = atomic_load(herald_wakeup_word(world.wakeup, ME));

	for (int i = 0; i < 4; i++)
		assert_true(move());
	assert_int_equal(hold(ME, border(1) - 8), HERALD_HOLD_GONE);
	assert_int_equal(hold(ME, world.start), HERALD_HOLD_GONE);
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), word);
	assert_true(herald_queue_lock_border(world.queue));
	assert_int_equal(hold(ME, border(1)), HERALD_HOLD_AGAIN);
	assert_int_equal(atomic_load(herald_wakeup_word(world.wakeup, ME)), word);
	herald_queue_unlock_border(world.queue);
	assert_int_equal(hold(ME, border(1)), HERALD_HOLD_DONE);
}

/* Guards: a session that comes while a segment is leaving the ring does not lose it. */
static void
test_comes_meanwhile(void **state UNUSED)
{
	world.fail = true;
	world.comes = ME;
	world.comes_for = border(0);
	assert_false(move());
	assert_int_equal(atomic_load(&world.queue->tail), border(0));
	world.fail = false;
	assert_true(move());
	assert_int_equal(kept_from(), border(0));
}

/*
 * Guards: a segment that is saved while another process has the border lock is not saved
 * again, under a name that may be about to be deleted: it is recycled, or leaves the ring
 * with its file.
 */
static void
test_saved_in_ring(void **state UNUSED)
{
	world.border_taken = true;
	assert_false(move());
	herald_queue_unlock_border(world.queue);
	assert_int_equal(atomic_load(&world.queue->tail), border(0));
	assert_true(herald_retention_has(&world.retention, border(0)));
	assert_true(move());
	assert_int_equal(atomic_load(&world.queue->tail), border(1));
	assert_int_equal(world.saves, 1);

	world.border_taken = true;
	assert_false(move());
	herald_queue_unlock_border(world.queue);
	world.limits.retain_max = 0;
	trim();
	assert_int_equal(world.removes, 2);
	assert_int_equal(atomic_load(&world.queue->tail), border(2));
}

/*
 * Guards: a segment that leaves both the ring and the files is not saved again, though
 * there is no room again.
 */
static void
test_saved_and_let_go(void **state UNUSED)
{
	world.limits.retain_max = world.size;
	world.border_taken = true;
	assert_false(move());
	herald_queue_unlock_border(world.queue);
	world.fill = true;
	assert_true(move());
	assert_int_equal(world.saves, 2);
	assert_int_equal(world.removes, 1);
	assert_int_equal(kept_from(), border(1));
}

/*
 * Guards: other files are retained with segments; where one is removed, its channels are
 * complete only after it.
 */
static void
test_others(void **state UNUSED)
{
	add_other(border(0) + 8, world.size);
	add_other(border(2) + 8, world.size);
	trim();
	assert_int_equal(world.others_used, 2);
	assert_int_equal(kept_from(), border(0));
	world.limits.retain_max = 2 * world.size;
	trim();
	assert_int_equal(world.others_used, 1);
	assert_int_equal(kept_from(), border(0) + 16);
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, 1), border(0) + 16);
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, ~UINT64_C(1)), border(0));
	assert_int_equal(herald_retention_kept_from(&world.retention, world.queue, 0), border(0));
	assert_int_equal(hold(ME, border(0) + 8), HERALD_HOLD_GONE);
	assert_int_equal(hold(ME, border(0) + 16), HERALD_HOLD_DONE);

	/* It is needed now, so it is not deleted; but it is given up to make place for another. */
	world.limits.retain_max = 0;
	trim();
	assert_int_equal(world.others_used, 1);
	assert_true(herald_retention_give_up_oldest_other(&world.retention, world.queue, world.wakeup, &calls));
	assert_int_equal(world.dropped, 1);
	assert_int_equal(kept_from(), border(2) + 16);
	assert_false(herald_retention_give_up_oldest_other(&world.retention, world.queue, world.wakeup, &calls));
}

/* Guards: expired segments are deleted, as far as no listener needs them. */
static void
test_expire(void **state UNUSED)
{
	for (int i = 0; i < 3; i++)
		assert_true(move());
	herald_retention_expire(&world.retention, world.queue, world.wakeup, border(1), &calls);
	assert_int_equal(kept_from(), border(1));
	assert_int_equal(hold(ME, border(2)), HERALD_HOLD_DONE);
	herald_retention_expire(&world.retention, world.queue, world.wakeup, border(3), &calls);
	assert_int_equal(kept_from(), border(2));
}

#define world_test(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(test_ring_alone),
		world_test(test_limit),
		world_test(test_backlog_comes_first),
		world_test(test_disk_is_full),
		world_test(test_hold),
		world_test(test_hold_beyond),
		world_test(test_too_late),
		world_test(test_comes_meanwhile),
		world_test(test_saved_in_ring),
		world_test(test_saved_and_let_go),
		world_test(test_others),
		world_test(test_expire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
