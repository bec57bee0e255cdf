/*-------------------------------------------------------------------------
 *
 * test_reasons.c
 *	  Unit tests of reasons.h: coalesced signals.
 *
 * Guards: the first reason sends a signal, the next ones do not, and none is
 * lost between two calls that take them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "reasons.h"

#define FIRST_REASON	(UINT32_C(1) << HERALD_REASON_FIRST_OTHER)
#define OTHER_REASON	(UINT32_C(1) << 31)
#define ALL				UINT32_MAX
#define ROUNDS			100000
#define SECONDS_MAX		20		/* a reason that has not been seen after this time is lost */

static void
test_coalesced(void **state UNUSED)
{
	HeraldReasons reasons = 0;

	assert_int_equal(herald_reasons_take(&reasons, ALL), 0);
	assert_true(herald_reasons_add(&reasons, HERALD_REASON_NOTIFICATIONS, ALL));
	assert_false(herald_reasons_add(&reasons, HERALD_REASON_NOTIFICATIONS, ALL));
	assert_false(herald_reasons_add(&reasons, OTHER_REASON, ALL));
	assert_int_equal(herald_reasons_take(&reasons, ALL), HERALD_REASON_NOTIFICATIONS | OTHER_REASON);
	assert_int_equal(herald_reasons_take(&reasons, ALL), 0);
	assert_true(herald_reasons_add(&reasons, OTHER_REASON, ALL));
	assert_false(herald_reasons_add(&reasons, HERALD_REASON_NOTIFICATIONS, ALL));
	assert_int_equal(herald_reasons_take(&reasons, ALL), HERALD_REASON_NOTIFICATIONS | OTHER_REASON);
}

/* Guards: each group has a signal of its own, and is taken without the other. */
static void
test_groups(void **state UNUSED)
{
	HeraldReasons reasons = 0;

	assert_true(herald_reasons_add(&reasons, FIRST_REASON, HERALD_REASONS_CATCH_UP));
	assert_true(herald_reasons_add(&reasons, HERALD_REASON_NOTIFICATIONS, HERALD_REASONS_NOTIFY));
	assert_false(herald_reasons_add(&reasons, OTHER_REASON, HERALD_REASONS_CATCH_UP));
	assert_int_equal(herald_reasons_take(&reasons, HERALD_REASONS_NOTIFY), HERALD_REASON_NOTIFICATIONS);
	assert_int_equal(herald_reasons_take(&reasons, HERALD_REASONS_NOTIFY), 0);
	assert_int_equal(herald_reasons_take(&reasons, HERALD_REASONS_CATCH_UP),
					 FIRST_REASON | OTHER_REASON);
	assert_int_equal(reasons, 0);
}

/* Two senders, each with a bit of its own, against one receiver. */
typedef struct Shared
{
	HeraldReasons reasons;
	_Atomic uint32_t signals;	/* sent and not yet received */
	_Atomic uint32_t given[2];	/* how often a reason was given */
	_Atomic uint32_t seen[2];	/* how many of those the receiver has seen */
	_Atomic bool gave_up;
} Shared;

typedef struct Sender
{
	Shared	   *shared;
	int			which;
} Sender;

/* Each reason is given only when the one before has been seen. */
static void *
give_reasons(void *arg)
{
	Sender	   *sender = arg;
	Shared	   *shared = sender->shared;

	for (uint32_t i = 1; i <= ROUNDS && !atomic_load(&shared->gave_up); i++)
	{
		atomic_store(&shared->given[sender->which], i);
		if (herald_reasons_add(&shared->reasons, UINT32_C(1) << sender->which, ALL))
			atomic_fetch_add(&shared->signals, 1);
		while (atomic_load(&shared->seen[sender->which]) < i && !atomic_load(&shared->gave_up))
			sched_yield();
	}
	return NULL;
}

/*
 * Guards: a receiver that looks only when it has been signalled sees every
 * reason that was given, and is never signalled without one.
 */
static void
test_no_reason_is_lost(void **state UNUSED)
{
	Shared		shared = {0};
	Sender		senders[2] = {{&shared, 0}, {&shared, 1}};
	pthread_t	threads[2];
	bool		for_nothing = false;
	time_t		until = time(NULL) + SECONDS_MAX;

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, give_reasons, &senders[i]), 0);
	while ((shared.seen[0] < ROUNDS || shared.seen[1] < ROUNDS) && time(NULL) < until)
	{
		uint32_t	mask;

		if (atomic_load(&shared.signals) == 0)
		{
			sched_yield();
			continue;
		}
		atomic_fetch_sub(&shared.signals, 1);
		mask = herald_reasons_take(&shared.reasons, ALL);
		until = time(NULL) + SECONDS_MAX;
		for_nothing = for_nothing || mask == 0;
		for (int i = 0; i < 2; i++)
			if (mask & UINT32_C(1) << i)
				atomic_store(&shared.seen[i], atomic_load(&shared.given[i]));
	}
	atomic_store(&shared.gave_up, true);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_false(for_nothing);
	assert_int_equal(shared.seen[0], ROUNDS);
	assert_int_equal(shared.seen[1], ROUNDS);
	assert_int_equal(shared.reasons, 0);
	assert_int_equal(shared.signals, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_coalesced),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_no_reason_is_lost),
	};

	return cmocka_run_group_tests_name("reasons", tests, NULL, NULL);
}
