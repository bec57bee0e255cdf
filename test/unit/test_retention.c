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
#include "wakeup_support.h"

#include "retention.h"

#define NO_LIMIT	UINT64_MAX
#define NOTED_MAX	32

/* The place where segments are saved, and the calls to it. */
static struct
{
	HeraldQueue  *queue;
	HeraldWakeup *wakeup;
	HeraldRetention retention;
	HeraldPosition start;
	uint64_t	size;			/* of a segment */
	int			fail;			/* number of saves that fail */
	int			disk_segments;	/* number that fits on the disk; 0: any number */
	HeraldPosition recycle_to;	/* by another process, during the next save */
	HeraldPosition recycle_and_fill_to;	/* by another process, when the next one is deleted */
	bool		lock_border;	/* by another process, during the next save */
	HeraldPosition kept[NOTED_MAX];
	int			kept_count;
	HeraldPosition failed;		/* the last that could not be saved; 0: none, or it is deleted */
	int			removed;		/* and not deleted yet: their room is not free */
	int			saves;
	int			dropped;
	int			overruns[2];	/* by reason */
	uint32_t	overrun_slot;
}			world;

static bool
save(HeraldPosition segment)
{
	/* Still in the ring, and not covered yet: no reader looks for it here [F1]. */
	assert_int_equal(segment, atomic_load(&world.queue->tail));
	assert_false(herald_retention_has(&world.retention, segment));
	assert_true(atomic_load(&world.queue->settled) >= segment + world.size);
	world.saves++;
	if (world.fail > 0 || (world.disk_segments > 0 &&
						   world.kept_count + world.removed >= world.disk_segments))
	{
		world.fail -= world.fail > 0;
		world.failed = segment;
		return false;
	}
	assert_true(world.kept_count < NOTED_MAX);
	world.kept[world.kept_count++] = segment;
	if (world.recycle_to != 0)
		assert_true(recycle(world.queue, world.recycle_to));
	world.recycle_to = 0;
	if (world.lock_border)
		assert_true(herald_queue_lock_border(world.queue));
	world.lock_border = false;
	return true;
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
forget(HeraldPosition segment)
{
	/* It is no longer covered: a reader that looks for it now finds it gone. */
	assert_false(herald_retention_has(&world.retention, segment));
	if (world.recycle_and_fill_to != 0)
	{
		assert_true(recycle(world.queue, world.recycle_and_fill_to));
		world.recycle_and_fill_to = 0;
		fill();
	}
	for (int i = 0; i < world.kept_count; i++)
		if (world.kept[i] == segment)
		{
			world.kept[i] = world.kept[--world.kept_count];
			world.removed++;
			return;
		}
	if (segment != world.failed)
		fail_msg("what was not saved is deleted");
	world.failed = 0;
}

/* Segments that are removed are deleted when the spiller comes back. */
static bool
is_removing(void)
{
	return world.removed > 0;
}

static void
note_dropped(void)
{
	world.dropped++;
}

static void
note_overrun(uint32_t slot, HeraldOverrunReason reason)
{
	/* `lost` has not passed it yet: a listener is reported first [F2]. */
	assert_true(herald_word_position(atomic_load(herald_wakeup_word(world.wakeup, slot))) >=
				atomic_load(&world.queue->lost));
	world.overruns[reason]++;
	world.overrun_slot = slot;
}

static const HeraldRetentionCalls calls = {
	.save = save,
	.remove = forget,
	.removing = is_removing,
	.dropped = note_dropped,
	.overrun = note_overrun,
};

/* Seven segments full of settled batches, and less than one left; all listeners idle. */
static int
setup(void **state UNUSED)
{
	memset((void *) &world, 0, sizeof(world));
	world.queue = log_new();
	world.size = world.queue->segment_size;
	world.start = atomic_load(&world.queue->tail);
	world.wakeup = wakeup_new_idle(SLOTS, 1, world.start);
	for (int i = 0; i < HERALD_SEGMENTS - 1; i++)
		leave_in_segment(world.queue, 0);
	batch_send(world.queue, "a little more");
	dispatch_all(world.queue);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		atomic_store(herald_wakeup_word(world.wakeup, slot),
					 atomic_load(&world.queue->settled) | HERALD_LISTENER_IDLE);
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

static void
set_listener(uint32_t slot, HeraldPosition position, unsigned state)
{
	atomic_store(herald_wakeup_word(world.wakeup, slot), herald_word_make(position, state));
}

/* Move the oldest segment, and fill the room that this makes, to be short again. */
static bool
move(uint64_t bytes_max)
{
	HeraldRetentionResult result;

	do
	{
		result = herald_retention_move(&world.retention, world.queue, world.wakeup,
									  &(HeraldRetentionLimits) {.bytes_max = bytes_max}, &calls);
		assert_true(result != HERALD_RETENTION_AGAIN || world.removed > 0);
		world.removed = 0;		/* deleted by now */
	} while (result == HERALD_RETENTION_AGAIN);

	if (result == HERALD_RETENTION_ROOM && !herald_queue_is_short(world.queue))
		fill();
	return result == HERALD_RETENTION_ROOM;
}

static void
trim(void)
{
	(void) herald_retention_leave_room(&world.retention, world.queue, world.wakeup, 0,
									   &(HeraldRetentionLimits) {.bytes_max = NO_LIMIT}, &calls);
}

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
	assert_true(move(NO_LIMIT));
	assert_int_equal(atomic_load(&world.queue->tail), border(1));
	assert_int_equal(world.saves, 0);
	assert_saved(1, 1);

	/* Nor does it count as given up if nothing may be saved. */
	assert_true(move(0));
	assert_int_equal(world.dropped, 0);
	assert_int_equal(atomic_load(&world.queue->lost), 0);
}

/* Guards: a segment is not moved while it is written or dispatched, or if there is room. */
static void
test_not_yet(void **state UNUSED)
{
	HeraldPosition settled = atomic_load(&world.queue->settled);

	atomic_store(&world.queue->settled, border(1) - 8);
	assert_false(move(NO_LIMIT));
	atomic_store(&world.queue->settled, border(1));
	assert_true(move(NO_LIMIT));
	atomic_store(&world.queue->settled, settled);
	assert_true(recycle(world.queue, border(4)));
	assert_int_equal(herald_retention_move(&world.retention, world.queue, world.wakeup,
											   &(HeraldRetentionLimits) {.bytes_max = NO_LIMIT}, &calls),
					 HERALD_RETENTION_ROOM);
	assert_int_equal(atomic_load(&world.queue->tail), border(4));
	assert_int_equal(world.saves, 0);
}

/* Guards: each segment is kept for a laggard until it has read it. */
static void
test_laggard(void **state UNUSED)
{
	set_listener(99, border(0) + 800, HERALD_LISTENER_BUSY_PENDING);
	for (int i = 1; i <= 12; i++)
	{
		assert_true(move(NO_LIMIT));
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
	assert_true(move(NO_LIMIT));
	assert_saved(7, 13);
	set_listener(99, border(13), HERALD_LISTENER_PROCESSING);
	trim();
	assert_saved(13, 13);
	assert_int_equal(world.dropped, 0);

	/* The laggard has reached the ring: a new stretch begins where it is. */
	assert_true(move(NO_LIMIT));
	assert_saved(13, 14);
}

/* Guards: past the limit the oldest goes, and only the listeners that needed it are overrun. */
static void
test_limit(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	set_listener(98, border(1), HERALD_LISTENER_PENDING);
	set_listener(97, border(0), HERALD_LISTENER_IDLE);
	for (int i = 1; i <= 3; i++)
		assert_true(move(3 * world.size + 8));
	assert_saved(0, 3);
	assert_int_equal(world.dropped, 0);

	assert_true(move(3 * world.size + 8));
	assert_saved(1, 4);
	assert_int_equal(world.dropped, 1);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(world.overrun_slot, 99);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	/* The listener is not counted twice; and then none is left that needs a saved segment. */
	assert_true(move(3 * world.size + 8));
	assert_saved(2, 4);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 2);
	assert_int_equal(world.overrun_slot, 98);

	/* The rest is deleted, and no listener loses anything. */
	assert_true(move(3 * world.size + 8));
	assert_saved(6, 6);
	assert_int_equal(world.dropped, 2);
}

/* Guards: if nothing may be saved, the ring's oldest segment is given up at once. */
static void
test_no_room_at_all(void **state UNUSED)
{
	set_listener(99, border(0) + 8, HERALD_LISTENER_AGAIN);
	assert_true(move(world.size - 8));
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
		assert_true(move(NO_LIMIT));
	world.fail = 2;
	assert_true(move(NO_LIMIT));
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
	assert_true(move(NO_LIMIT));
	assert_int_equal(world.fail, 100 - 3);
	assert_saved(5, 5);
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 4);
	assert_int_equal(atomic_load(&world.queue->lost), border(5));
	assert_int_equal(world.failed, 0);	/* its incomplete file is deleted, too */

	/* No listener is left that needs anything. */
	assert_true(move(NO_LIMIT));
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
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	set_listener(98, border(1), HERALD_LISTENER_PENDING);
	for (int i = 1; i <= 3; i++)
		assert_true(move(3 * world.size));
	assert_true(move(3 * world.size));
	assert_saved(1, 4);
	assert_int_equal(world.overruns[HERALD_OVERRUN_LIMIT], 1);
	assert_int_equal(world.overrun_slot, 99);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	/* No listener needs the segments before the other's position. */
	set_listener(98, border(2), HERALD_LISTENER_PENDING);
	assert_true(move(NO_LIMIT));
	assert_saved(2, 5);
	assert_int_equal(atomic_load(&world.queue->lost), border(1));

	assert_true(move(NO_LIMIT));
	assert_int_equal(world.overruns[HERALD_OVERRUN_ERROR], 1);
	assert_int_equal(world.overrun_slot, 98);
}

/*
 * Guards: a segment that another process recycles while it is saved may be torn, does not
 * count, and is deleted; and the saved stretch has no gap, but begins again behind it.
 */
static void
test_recycled_while_saved(void **state)
{
	for (int ahead = 1; ahead <= 3; ahead++)
	{
		set_listener(99, border(0), HERALD_LISTENER_PENDING);
		assert_true(move(NO_LIMIT));
		world.recycle_to = border(1 + ahead);
		assert_false(move(NO_LIMIT));
		assert_int_equal(world.saves, 2);
		assert_saved(0, 1);
		assert_int_equal(atomic_load(&world.queue->tail), border(1 + ahead));

		for (int i = 0; i < ahead; i++)
			leave_in_segment(world.queue, 0);
		batch_send(world.queue, "a little more");
		dispatch_all(world.queue);
		assert_true(move(NO_LIMIT));
		assert_saved(1 + ahead, 2 + ahead);
		teardown(state);
		setup(state);
	}
}

/*
 * Guards: a segment that others recycle before it is saved is not taken for saved when the
 * next one is.
 */
static void
test_recycled_before_saved(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	assert_true(move(NO_LIMIT));
	assert_saved(0, 1);
	set_listener(99, border(2), HERALD_LISTENER_PENDING);
	world.recycle_and_fill_to = border(2);
	(void) move(NO_LIMIT);
	assert_false(herald_retention_has(&world.retention, border(1)));
	assert_true(move(NO_LIMIT));
	assert_saved(2, 3);
}

/*
 * Guards: a segment that was saved, but not recycled as another process had the border
 * lock, is not saved again.
 */
static void
test_border_is_locked(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	world.lock_border = true;
	assert_false(move(NO_LIMIT));
	assert_saved(0, 1);
	assert_int_equal(atomic_load(&world.queue->tail), border(0));
	herald_queue_unlock_border(world.queue);
	assert_true(move(NO_LIMIT));
	assert_int_equal(world.saves, 1);
	assert_saved(0, 1);
	assert_int_equal(atomic_load(&world.queue->tail), border(1));
}

/* Guards: the same, if no listener needs it any more by then: nothing is left behind. */
static void
test_border_is_locked_in_vain(void **state UNUSED)
{
	set_listener(99, border(0), HERALD_LISTENER_PENDING);
	world.lock_border = true;
	assert_false(move(NO_LIMIT));
	herald_queue_unlock_border(world.queue);
	set_listener(99, border(3), HERALD_LISTENER_PENDING);
	trim();
	assert_saved(0, 0);
	assert_true(move(NO_LIMIT));
	assert_saved(1, 1);
	assert_int_equal(world.saves, 1);
}

#define world_test(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(test_nobody),
		world_test(test_not_yet),
		world_test(test_laggard),
		world_test(test_limit),
		world_test(test_no_room_at_all),
		world_test(test_errors),
		world_test(test_full_disk),
		world_test(test_recycled_while_saved),
		world_test(test_recycled_before_saved),
		world_test(test_border_is_locked),
		world_test(test_border_is_locked_in_vain),
	};

	return cmocka_run_group_tests_name("spilled", tests, NULL, NULL);
}
