/*-------------------------------------------------------------------------
 *
 * test_wal_coverage.c
 *	  Unit tests of wal_coverage.c: every step from every state, and long histories.
 *
 * Guards: what a server has committed without pg_herald is never taken for complete, and what it
 * has committed with it never for a gap.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "wal_coverage.h"

#define HISTORIES	20000
#define STEPS_MAX	12

/* What a reader that began in the middle of a run has met. */
typedef struct Story
{
	bool		is_lost;		/* a part of the WAL was left out before, and it is not known of which runs */
	bool		has_message;	/* of the present run */
	bool		has_beginning;	/* of the present run: it was met */
	bool		is_uncovered;	/* a run has committed without pg_herald, of which nothing has come since */
	bool		is_gap;			/* the last step has made one known, or ended one */
} Story;

static Story
after(Story story, HeraldWalStep step)
{
	story.is_gap = false;
	switch (step)
	{
		case HERALD_WAL_MESSAGE:
			story.is_gap = story.is_uncovered || story.is_lost;
			story.is_uncovered = story.is_lost = false;
			story.has_message = true;
			break;
		case HERALD_WAL_COMMIT:
			if (story.has_beginning && !story.has_message)
			{
				story.is_gap = !story.is_uncovered;
				story.is_uncovered = true;
			}
			break;
		case HERALD_WAL_BEGINNING:
			story.is_gap = story.is_lost;
			story.is_lost = false;
			story.has_beginning = true;
			story.has_message = false;
			break;
	}
	return story;
}

static HeraldWalCoverage
coverage_of(Story story)
{
	if (story.is_uncovered)
		return HERALD_WAL_UNCOVERED;
	if (story.has_message)
		return HERALD_WAL_COVERED;
	if (story.has_beginning)
		return HERALD_WAL_BEGUN;
	return story.is_lost ? HERALD_WAL_LOST : HERALD_WAL_UNKNOWN;
}

/* Guards: all histories up to a length end in the state, and have the gaps, that the story says. */
static void
test_all_short_histories(void **state UNUSED)
{
	bool		reached[HERALD_WAL_COVERAGES][HERALD_WAL_STEPS] = {{false}};
	int			histories = 1;

	for (int length = 1; length <= STEPS_MAX; length++)
		histories *= HERALD_WAL_STEPS;
	for (int history = 0; history < 2 * histories; history++)
	{
		Story		story = {.is_lost = history % 2 != 0};
		HeraldWalCoverage coverage = coverage_of(story);
		int			rest = history / 2;

		for (int i = 0; i < STEPS_MAX; i++, rest /= HERALD_WAL_STEPS)
		{
			HeraldWalStep step = rest % HERALD_WAL_STEPS;
			bool		is_gap;

			reached[coverage][step] = true;
			coverage = herald_wal_coverage_next(coverage, step, &is_gap);
			story = after(story, step);
			assert_int_equal(coverage, coverage_of(story));
			assert_int_equal(is_gap, story.is_gap);
		}
	}
	for (int from = 0; from < HERALD_WAL_COVERAGES; from++)
		for (int step = 0; step < HERALD_WAL_STEPS; step++)
			assert_true(reached[from][step]);
}

/* The runs of a server, each with pg_herald or without. */
typedef struct World
{
	unsigned	seed;
	bool		has_herald;
	bool		is_announced;	/* [X4] before the first commit */
} World;

static unsigned
draw(World *world, unsigned below)
{
	world->seed = world->seed * 1103515245 + 12345;
	return (world->seed >> 16) % below;
}

static HeraldWalStep
next_step(World *world, bool always_herald)
{
	unsigned	choice = draw(world, 4);

	if (choice == 0)
	{
		world->has_herald = always_herald || draw(world, 2) == 0;
		world->is_announced = false;
		return HERALD_WAL_BEGINNING;
	}
	if (!world->has_herald || (world->is_announced && choice > 1))
		return HERALD_WAL_COMMIT;
	world->is_announced = true;
	return HERALD_WAL_MESSAGE;
}

/*
 * Guards: once there is evidence, there is a gap between a commit without pg_herald and pg_herald's next message,
 * which alone can be followed by notifications; and what is known of a commit agrees with the world.
 */
static void
test_runs(void **state UNUSED)
{
	for (unsigned history = 0; history < HISTORIES; history++)
	{
		World		world = {.seed = history,.has_herald = history % 2,.is_announced = true};
		HeraldWalCoverage coverage = HERALD_WAL_UNKNOWN;
		bool		is_lost = false;

		for (int i = 0; i < 4 * STEPS_MAX; i++)
		{
			HeraldWalStep step = next_step(&world, false);
			bool		is_gap;

			coverage = herald_wal_coverage_next(coverage, step, &is_gap);
			is_lost |= step == HERALD_WAL_COMMIT && !world.has_herald && coverage != HERALD_WAL_UNKNOWN;
			is_lost &= !is_gap;
			if (step == HERALD_WAL_MESSAGE)
				assert_false(is_lost);
			if (step == HERALD_WAL_COMMIT && coverage != HERALD_WAL_UNKNOWN)
				assert_int_equal(coverage, world.has_herald ? HERALD_WAL_COVERED : HERALD_WAL_UNCOVERED);
		}
	}
}

/* Guards: a server that always has pg_herald makes no gap, if reading begins where it says so, or where a run begins. */
static void
test_always_there(void **state UNUSED)
{
	for (unsigned history = 0; history < HISTORIES; history++)
	{
		World		world = {.seed = history,.has_herald = true};
		HeraldWalCoverage coverage = HERALD_WAL_UNKNOWN;

		for (int i = 0; i < 4 * STEPS_MAX; i++)
		{
			bool		is_gap;

			coverage = herald_wal_coverage_next(coverage, next_step(&world, true), &is_gap);
			assert_false(is_gap);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_short_histories),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_always_there),
	};

	return cmocka_run_group_tests_name("WAL coverage", tests, NULL, NULL);
}
