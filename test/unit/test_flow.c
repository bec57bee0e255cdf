/*-------------------------------------------------------------------------
 *
 * test_flow.c
 *	  Unit tests of flow.c: the backlog that senders wait for.
 *
 * Guards: only a listener that makes progress slows a sender down.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "flow.h"

#define SLOTS	70
#define SLOT	66

typedef struct World
{
	HeraldLog  *log;
	HeraldWakeup *wakeup;
	HeraldPosition start;
} World;

/* One listener, and 10000 bytes dispatched since the start. */
static World
world_new(void)
{
	World		world = {.log = log_new(),.wakeup = memory_new(herald_wakeup_memory(SLOTS))};

	herald_wakeup_init(world.wakeup, SLOTS, 1);
	world.start = atomic_load(&world.log->dispatched);
	herald_wakeup_join(world.wakeup, SLOT, world.start);
	atomic_store(&world.log->head, world.start + 10000);
	atomic_store(&world.log->dispatched, world.start + 10000);
	return world;
}

static void
world_free(World *world)
{
	free(world->log);
	free(world->wakeup);
}

static void
set_listener(World *world, uint64_t offset, unsigned state)
{
	atomic_store(herald_wakeup_word(world->wakeup, SLOT),
				 herald_word_make(world->start + offset, state));
}

static uint64_t
backlog(World *world, uint64_t enough)
{
	return herald_flow_backlog(world->log, world->wakeup, enough);
}

/* Guards: which states count, and that standing still does not. */
static void
test_states(void **state UNUSED)
{
	static const bool counts[] = {
		[HERALD_LISTENER_FREE] = false,[HERALD_LISTENER_IDLE] = false,
		[HERALD_LISTENER_PENDING] = true,[HERALD_LISTENER_SIGNALLED] = true,
		[HERALD_LISTENER_PROCESSING] = true,[HERALD_LISTENER_AGAIN] = true,
		[HERALD_LISTENER_BUSY] = false,[HERALD_LISTENER_BUSY_PENDING] = false,
	};

	for (unsigned s = 0; s <= HERALD_LISTENER_BUSY_PENDING; s++)
		for (uint32_t stalled = 0; stalled < 2; stalled++)
		{
			World		world = world_new();

			set_listener(&world, 2000, s);
			atomic_store(&herald_wakeup_turn(world.wakeup, SLOT)->stalled, stalled);
			assert_int_equal(backlog(&world, 0), counts[s] && !stalled ? 8000 : 0);
			world_free(&world);
		}
}

/* Guards: with nobody behind there is no backlog, and the floor is remembered. */
static void
test_nobody(void **state UNUSED)
{
	World		world = world_new();

	set_listener(&world, 10000, HERALD_LISTENER_PROCESSING);
	assert_int_equal(backlog(&world, 1), 0);
	assert_int_equal(atomic_load(&world.log->read_floor), world.start + 10000);
	assert_int_equal(backlog(&world, 0), 0);
	world_free(&world);
}

/* Guards: below `enough` the old figure does; above it, listeners are looked at. */
static void
test_cached_floor(void **state UNUSED)
{
	World		world = world_new();

	set_listener(&world, 4000, HERALD_LISTENER_PROCESSING);
	assert_int_equal(backlog(&world, 10000), 10000);
	assert_int_equal(atomic_load(&world.log->read_floor), world.start);
	assert_int_equal(backlog(&world, 9999), 6000);
	assert_int_equal(atomic_load(&world.log->read_floor), world.start + 4000);

	set_listener(&world, 7000, HERALD_LISTENER_PROCESSING);
	assert_int_equal(backlog(&world, 6000), 6000);
	assert_int_equal(backlog(&world, 5999), 3000);
	world_free(&world);
}

/* Guards: a floor beyond what a late reader of `dispatched` saw is no backlog. */
static void
test_floor_ahead(void **state UNUSED)
{
	World		world = world_new();

	atomic_store(&world.log->read_floor, world.start + 20000);
	assert_int_equal(backlog(&world, 0), 0);
	assert_int_equal(atomic_load(&world.log->read_floor), world.start + 20000);
	world_free(&world);
}

/* Guards: the slowest of several counts. */
static void
test_slowest(void **state UNUSED)
{
	World		world = world_new();

	for (uint32_t slot = 0; slot < SLOT; slot++)
	{
		herald_wakeup_join(world.wakeup, slot, world.start);
		atomic_store(herald_wakeup_word(world.wakeup, slot),
					 herald_word_make(world.start + 1000 + 8 * slot, HERALD_LISTENER_PENDING));
	}
	set_listener(&world, 0, HERALD_LISTENER_BUSY_PENDING);
	assert_int_equal(backlog(&world, 0), 9000);
	atomic_store(&herald_wakeup_turn(world.wakeup, 0)->stalled, 1);
	assert_int_equal(backlog(&world, 0), 8992);
	world_free(&world);
}

/* Guards: who reads what is no longer in the ring is not waited for; who reads its oldest is. */
static void
test_below_tail(void **state UNUSED)
{
	World		world = world_new();

	herald_wakeup_join(world.wakeup, 3, world.start);
	atomic_store(herald_wakeup_word(world.wakeup, 3),
				 herald_word_make(world.start + 6000, HERALD_LISTENER_PENDING));
	set_listener(&world, 2000, HERALD_LISTENER_PROCESSING);
	atomic_store(&world.log->tail, world.start + 2000);
	assert_int_equal(backlog(&world, 0), 8000);
	atomic_store(&world.log->tail, world.start + 2008);
	assert_int_equal(backlog(&world, 0), 4000);
	assert_int_equal(atomic_load(&world.log->read_floor), world.start + 6000);

	/* It comes nearer, and is back in the ring. */
	atomic_store(&world.log->read_floor, world.start);
	set_listener(&world, 2008, HERALD_LISTENER_PROCESSING);
	assert_int_equal(backlog(&world, 0), 7992);

	/* All of them below: nobody is waited for. */
	atomic_store(&world.log->tail, world.start + 8000);
	assert_int_equal(backlog(&world, 0), 0);
	world_free(&world);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_cached_floor),
		cmocka_unit_test(test_floor_ahead),
		cmocka_unit_test(test_slowest),
		cmocka_unit_test(test_below_tail),
	};

	return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
