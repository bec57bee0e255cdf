/*-------------------------------------------------------------------------
 *
 * test_wal_world.c
 *	  Random stories of servers and clients for receipt.c and wal_history.c: is anything missed, doubled, or of
 *	  another history?
 *
 * wal_world.h and wal_world_client.h say what there is, and what is checked.  HERALD_TEST_SEED runs one seed only.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "wal_world_client.h"

#define SEEDS			10000
#define STEPS_MAX		1200

static uint64_t story;
static uint64_t random_state;

/* splitmix64 */
static unsigned
draw(unsigned limit)
{
	uint64_t	z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (unsigned) ((z ^ (z >> 31)) % limit);
}

static void
must(bool condition, const char *what)
{
	if (!condition)
		fail_msg("seed %llu, not so: %s", (unsigned long long) story, what);
}

static void
run_story(uint64_t seed)
{
	story = random_state = seed;
	begin_story();
	for (unsigned steps = 50 + draw(STEPS_MAX); steps > 0; steps--)
		world_step();
	check_at_rest();
}

/* Guards: what check_resumed(), receive() and check_position() say; and most positions are good. */
static void
test_stories(void **state UNUSED)
{
	const char *seed = getenv("HERALD_TEST_SEED");

	if (seed != NULL)
	{
		run_story(strtoull(seed, NULL, 10));
		return;
	}
	for (uint64_t s = 1; s <= SEEDS; s++)
		run_story(s);
	printf("%lu received; resumed: %lu at places, %lu by the WAL, %lu of them where a place would do; "
		   "not resumed: %lu late, %lu unsettled, %lu of another history; at rest %lu resumed, %lu refused, %lu of them hidden\n",
		   totals.received, totals.by_place, totals.by_wal, totals.by_wal_here, totals.late, totals.unsettled,
		   totals.refused, totals.resumed_at_rest, totals.refused_at_rest, totals.hidden_at_rest);
	assert_true(totals.by_place > 10 * SEEDS && totals.by_wal > 20 * SEEDS && totals.by_wal_here > 10 * SEEDS);
	assert_true(totals.by_wal > 2 * (totals.late + totals.unsettled + totals.refused));
	assert_true(totals.late > 100 && totals.unsettled > 100 && totals.refused > 100);
	assert_true(totals.resumed_at_rest > 4 * totals.refused_at_rest);
	assert_true(totals.hidden_at_rest * 1000 < totals.resumed_at_rest);
}

/* ---- a story that hardly ever happens by itself ---- */

static int
reserve_on(Server *server)
{
	reserve(server);
	world.transactions[world.used - 1].database = 0;
	return world.used - 1;
}

static void
proceed_to(int transaction, Stage stage)
{
	while (world.transactions[transaction].stage != stage)
		proceed(transaction);
}

static void
settle_all(Server *server)
{
	while (server->settled < server->head)
		settle(server);
}

static void
replay_all(Server *standby)
{
	world.servers[standby->source].flushed = world.servers[standby->source].records;
	while (standby->records < world.servers[standby->source].records)
		replay(standby);
	relay_catch_up(standby);
	settle_all(standby);
}

static Position
receive_settled(Client *client)
{
	while (client->state == IN_HISTORY)
		receive_past(client);
	while (client->place < client->server->settled)
		receive_next(client);
	return position_now(client);
}

/*
 * A client has received from a standby what was committed behind the latest anchor.  On the primary it is before a
 * transaction that is older than the anchor and commits later: so reading begins before that anchor, also when the client has gone
 * back to this place, and the primary has committed more.
 */
static void
test_back_before_anchor(void **state UNUSED)
{
	Server	   *primary = &world.servers[0];
	Server	   *standby = &world.servers[1];
	Client	   *client = &clients[0];
	Position	position;
	int			first;
	int			slow;

	random_state = 1;
	begin_story();
	world.is_at_rest = true;
	world.abort_percent = 0;
	first = reserve_on(primary);
	proceed_to(first, LOGGED);
	slow = reserve_on(primary);
	proceed_to(slow, LOGGED);
	do
		anchor_proceed(primary);
	while (primary->anchor_step != NO_ANCHOR);
	assert_int_equal(primary->anchor_count, 2);
	begin(client, standby);
	proceed_to(first, FINISHED);
	replay_all(standby);
	position = receive_settled(client);
	assert_int_equal(client->now.received, BIT(first));

	settle(primary);
	assert_int_equal(resume(client, primary, &position, false, TRANSACTIONS), RESUMED);
	assert_int_equal(finish_cut(client, TRANSACTIONS), RESUMED);
	position = receive_settled(client);
	assert_int_equal(position.place, 1);
	proceed_to(slow, FINISHED);
	proceed_to(reserve_on(primary), FINISHED);
	settle_all(primary);
	assert_int_equal(resume(client, primary, &position, true, TRANSACTIONS), RESUMED);
	position = position_now(client);

	replay_all(standby);
	assert_int_equal(resume(client, standby, &position, false, TRANSACTIONS), RESUMED);
	(void) receive_settled(client);
	assert_int_equal(client->now.received, committed_until(standby, UINT64_MAX));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stories),
		cmocka_unit_test(test_back_before_anchor),
	};

	return cmocka_run_group_tests_name("WAL world", tests, NULL, NULL);
}
