/*-------------------------------------------------------------------------
 *
 * test_moderation_rules.c
 *	  Unit tests of moderation_rules.c: when a listener waits for more batches,
 *	  and for how long.
 *
 * Guards: every rule by itself, at its limits.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "moderation_rules.h"

/* A pass under load: three batches of several senders, a step after the previous pass. */
static HeraldPass
busy_pass(void)
{
	return (HeraldPass) {.since_us = 100,.batches = 3,.several = true};
}

/* Guards: more is expected if a batch or more comes per step, and the last pass is recent. */
static void
test_expects(void **state UNUSED)
{
	HeraldPass	pass = {.since_us = 300,.batches = 3};

	assert_true(herald_moderation_expects(&pass));
	pass.since_us = 301;
	assert_false(herald_moderation_expects(&pass));
	pass = (HeraldPass) {.since_us = 9999,.batches = 63};
	assert_false(herald_moderation_expects(&pass));
	pass = (HeraldPass) {.since_us = 6300,.batches = 63};
	assert_true(herald_moderation_expects(&pass));
	pass.batches = 64;			/* the pass carries enough */
	assert_false(herald_moderation_expects(&pass));
	pass = (HeraldPass) {.since_us = UINT64_MAX,.batches = 3};	/* the first pass */
	assert_false(herald_moderation_expects(&pass));
}

/* Guards: the server is at rest if the previous pass is as long ago as it could matter, or there is none. */
static void
test_is_at_rest(void **state UNUSED)
{
	HeraldPass	pass = {.since_us = 9999,.batches = 1};

	assert_false(herald_moderation_is_at_rest(&pass));
	pass.since_us = 10000;
	assert_true(herald_moderation_is_at_rest(&pass));
	pass.since_us = UINT64_MAX;
	assert_true(herald_moderation_is_at_rest(&pass));
}

/* Guards: no lingering for a single notification, for one sender, or while listeners wait. */
static void
test_does_not_linger(void **state UNUSED)
{
	HeraldRestraint restraint = {0};
	HeraldPass	pass = busy_pass();

	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), HERALD_STEP_US);
	assert_int_equal(herald_moderation_linger(&pass, 1, &restraint), 0);
	pass.several = false;
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
	pass = busy_pass();
	pass.batches = 2;
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
	pass = busy_pass();
	pass.since_us = 301;
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
	pass.since_us = UINT64_MAX;
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
	pass = (HeraldPass) {.since_us = 10000,.batches = 1000,.several = true};
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
}

/*
 * Guards: lingering goes on if two more batches come, a step longer each time, up to a
 * limit, and not for ever.
 */
static void
test_lingers_on(void **state UNUSED)
{
	static const uint32_t expected[] = {50, 100, 150, 200, 200};
	HeraldRestraint restraint = {0};
	HeraldPass	pass = busy_pass();

	for (pass.lingers = 0; pass.lingers < 32; pass.lingers++)
	{
		uint32_t	us = herald_moderation_linger(&pass, 0, &restraint);

		assert_int_equal(us, expected[pass.lingers < 4 ? pass.lingers : 4]);
		pass.batches_before = pass.batches;
		pass.batches += 2;
	}
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
	pass.lingers = 1;
	pass.batches_before = pass.batches - 1;
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
}

/* Guards: lingering without success is left out 1, 3, 7 ... 63 times, until it succeeds. */
static void
test_restraint(void **state UNUSED)
{
	HeraldRestraint restraint = {0};
	HeraldPass	pass = busy_pass();
	int			expected = 0;

	for (int round = 0; round < 10; round++)
	{
		for (int i = 0; i < expected; i++)
			assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), 0);
		assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), HERALD_STEP_US);
		herald_moderation_learn(&restraint, false);
		expected = expected * 2 + 1 < 63 ? expected * 2 + 1 : 63;
	}
	herald_moderation_learn(&restraint, true);
	assert_int_equal(herald_moderation_linger(&pass, 0, &restraint), HERALD_STEP_US);
}

/*
 * Guards: passing on a turn is delayed only if others wait, and more has come or is
 * expected; and not for long.
 */
static void
test_pauses(void **state UNUSED)
{
	assert_true(herald_moderation_pauses(true, false, 1, 2, 0));
	assert_true(herald_moderation_pauses(false, true, 1, 2, 0));
	assert_false(herald_moderation_pauses(false, false, 1, 2, 0));
	assert_false(herald_moderation_pauses(true, true, 0, 2, 0));
	assert_true(herald_moderation_pauses(true, false, 1, 2, 499));
	assert_false(herald_moderation_pauses(true, false, 1, 2, 500));

	/* With 100 listeners that wait, and two turns, a circle takes 10 ms longer. */
	assert_true(herald_moderation_pauses(true, false, 100, 2, 199));
	assert_false(herald_moderation_pauses(true, false, 100, 2, 200));
	assert_true(herald_moderation_pauses(true, false, 19999, 2, 0));
	assert_false(herald_moderation_pauses(true, false, 20001, 2, 0));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expects),
		cmocka_unit_test(test_is_at_rest),
		cmocka_unit_test(test_does_not_linger),
		cmocka_unit_test(test_lingers_on),
		cmocka_unit_test(test_restraint),
		cmocka_unit_test(test_pauses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
