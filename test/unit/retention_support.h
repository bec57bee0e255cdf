/*-------------------------------------------------------------------------
 *
 * retention_support.h
 *	  Shared by the tests of retention.c: a full ring, a place to save segments in, and
 *	  large transactions' files.
 *
 * The test is the spiller: only it moves the ring's tail.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef RETENTION_SUPPORT_H
#define RETENTION_SUPPORT_H

#include "wakeup_support.h"

#include "retention.h"

#define NO_LIMIT	UINT64_MAX
#define NOTED_MAX	32

/* The place where segments are saved, and the calls to it. */
static struct
{
	HeraldQueue  *queue;
	HeraldWakeup *wakeup;
	HeraldLargeTable *large;
	HeraldRetention retention;
	HeraldSpiller spiller;
	HeraldRetentionLimits limits;
	HeraldPosition start;
	uint64_t	size;			/* of a segment */
	int			fail;			/* number of saves that fail */
	int			disk_segments;	/* number that fits on the disk; 0: any number */
	HeraldPosition kept[NOTED_MAX];
	int			kept_count;
	HeraldPosition failed;		/* the last that could not be saved; 0: none, or it is deleted */
	int			removed;		/* and not deleted yet: their room is not free */
	int			removes;
	int			saves;
	int			dropped;
	int			overruns[2];	/* by reason */
	uint32_t	overrun_slot;
	uint64_t	large_bytes;	/* of large files that were removed */
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
	return true;
}

static void
forget(HeraldPosition segment)
{
	/* A reader that looks for it now finds it gone; and it is not saved again under its name. */
	assert_false(herald_retention_has(&world.retention, segment));
	assert_true(segment < atomic_load(&world.queue->tail));
	world.removes++;
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

static void
forget_large(uint64_t number, uint64_t bytes)
{
	assert_true(number > 0);
	world.large_bytes += bytes;
}

static const HeraldRetentionCalls calls = {
	.save = save,
	.remove = forget,
	.removing = is_removing,
	.dropped = note_dropped,
	.overrun = note_overrun,
	.remove_large = forget_large,
};

/*
 * Seven segments full of settled batches, and less than one left; all listeners are in a
 * transaction, with nothing to read.
 */
static int
setup(void **state UNUSED)
{
	memset((void *) &world, 0, sizeof(world));
	world.queue = log_new();
	world.size = world.queue->segment_size;
	world.start = atomic_load(&world.queue->tail);
	world.limits.bytes_max = NO_LIMIT;
	world.wakeup = wakeup_new_idle(SLOTS, 1, world.start);
	world.large = memory_new(sizeof(HeraldLargeTable));
	herald_large_table_init(world.large);
	world.spiller = (HeraldSpiller) {
		.retention = &world.retention,.queue = world.queue,.wakeup = world.wakeup,
		.large = world.large,.calls = &calls
	};
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
	free(world.large);
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
move(void)
{
	HeraldRetentionResult result;

	do
	{
		result = herald_retention_move(&world.spiller, &world.limits);
		assert_true(result != HERALD_RETENTION_AGAIN || world.removed > 0);
		world.removed = 0;		/* deleted by now */
	} while (result == HERALD_RETENTION_AGAIN);

	if (result == HERALD_RETENTION_ROOM && !herald_queue_is_short(world.queue))
	{
		leave_in_segment(world.queue, 0);
		batch_send(world.queue, "a little more");
		dispatch_all(world.queue);
	}
	return result == HERALD_RETENTION_ROOM;
}

static void
trim(void)
{
	assert_true(herald_retention_leave_room(&world.spiller, 0, &world.limits));
}

/* A large transaction's file of this size, on channels of these sets. */
static UNUSED void
add_large(HeraldPosition position, uint64_t bytes, uint64_t sets)
{
	uint64_t	number = herald_large_table_enter(world.large, 0);

	assert_true(herald_large_table_grow(world.large, number, bytes, UINT64_MAX));
	assert_true(herald_large_table_place(world.large, number, position, sets));
}

#endif							/* RETENTION_SUPPORT_H */
