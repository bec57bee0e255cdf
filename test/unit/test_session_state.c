/*-------------------------------------------------------------------------
 *
 * test_session_state.c
 *	  Unit tests of session_state.c: every event in every state.
 *
 * Guards: a session counts as busy exactly while it cannot deliver.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "session_state.h"

#define ROUNDS	100000

/* The states described by flags, as in a description for people. */
typedef struct Flags
{
	bool		listens;
	bool		busy;			/* it cannot deliver */
	bool		statement;		/* was executed in this transaction */
	bool		chains;
} Flags;

static Flags
flags_of(HeraldSessionState state)
{
	return (Flags) {
		.listens = state != HERALD_SESSION_ABSENT,
		.busy = state >= HERALD_SESSION_HELD,
		.statement = state >= HERALD_SESSION_BUSY,
		.chains = state == HERALD_SESSION_CHAINED,
	};
}

static Flags
flags_after(Flags flags, HeraldSessionEvent event)
{
	bool		remains;

	switch (event)
	{
		case HERALD_SESSION_JOINS:
			return flags.listens ? flags : (Flags) {.listens = true,.busy = true};
		case HERALD_SESSION_LEAVES:
			return (Flags) {0};
		case HERALD_SESSION_STATEMENT:
			if (flags.listens)
				flags.busy = flags.statement = true;
			return flags;
		case HERALD_SESSION_CHAIN:
			if (flags.busy)
				flags.chains = flags.statement = true;
			return flags;
		default:
			remains = flags.busy && (flags.chains || event == HERALD_SESSION_ABORT_IN_BLOCK);
			return (Flags) {.listens = flags.listens,.busy = remains};
	}
}

static void
assert_same(Flags a, Flags b)
{
	assert_int_equal(a.listens, b.listens);
	assert_int_equal(a.busy, b.busy);
	assert_int_equal(a.statement, b.statement);
	assert_int_equal(a.chains, b.chains);
}

/* Guards: each state after each event is the one that the flags describe. */
static void
test_table(void **state UNUSED)
{
	for (int from = 0; from < HERALD_SESSION_STATES; from++)
	{
		for (int event = 0; event < HERALD_SESSION_EVENTS; event++)
			assert_same(flags_of(herald_session_next(from, event)), flags_after(flags_of(from), event));
		assert_int_equal(herald_session_state_is_busy(from), flags_of(from).busy);
	}
}

/* Guards: whatever happens, a commit that begins no other transaction ends in IDLE, if the session listens. */
static void
test_comes_to_rest(void **state UNUSED)
{
	HeraldSessionState now = HERALD_SESSION_ABSENT;
	unsigned	seed = 1;

	for (int round = 0; round < ROUNDS; round++)
	{
		HeraldSessionState rest;

		seed = seed * 1103515245 + 12345;
		now = herald_session_next(now, (seed >> 16) % HERALD_SESSION_EVENTS);
		rest = herald_session_next(herald_session_next(now, HERALD_SESSION_COMMIT), HERALD_SESSION_COMMIT);
		assert_int_equal(rest, now == HERALD_SESSION_ABSENT ? HERALD_SESSION_ABSENT : HERALD_SESSION_IDLE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_comes_to_rest),
	};

	return cmocka_run_group_tests_name("session state", tests, NULL, NULL);
}
