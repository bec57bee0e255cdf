/*-------------------------------------------------------------------------
 *
 * test_wal_history.c
 *	  Unit tests of wal_history.c: each rule, at its borders.
 *
 * Guards: [X2] a commit is delivered if it is between the client's position and the cut, and only then; [X3] the
 * WAL is taken for the client's only if it has the client's witness.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "wal_history.h"

/* The position is of another server's run; the cut is a place of this server's. */
#define RUN				1
#define PLACE			40
#define OWN_RUN			2
#define CUT				50
#define OLDER_RUN		3

#define FROM			100
#define DONE			120
#define FURTHEST		150
#define WITNESS_PLACE	30

static HeraldWalHistory
history_new(void)
{
	const HeraldReceipt received = {
		.from = {FROM, RUN},.done = DONE,.furthest = {RUN, WITNESS_PLACE, FURTHEST}
	};

	return (HeraldWalHistory) {
		.run = RUN,.place = PLACE,.received = received,.own_run = OWN_RUN,.cut = CUT,.receipt = received,
	};
}

static HeraldWalVerdict
meet(HeraldWalHistory *history, uint64_t run, uint64_t place, uint64_t end)
{
	return herald_wal_history_commit(history, (HeraldCommitId) {run, place, end}, true);
}

static void
assert_met(uint64_t run, uint64_t place, uint64_t end, HeraldWalVerdict expected)
{
	HeraldWalHistory history = history_new();

	assert_int_equal(meet(&history, run, place, end), expected);
}

/* Guards: what is below the position by its place is not delivered again, of that run only. */
static void
test_below_by_place(void **state UNUSED)
{
	assert_met(RUN, PLACE - 1, FURTHEST + 10, HERALD_WAL_PASS_OVER);
	assert_met(RUN, PLACE, FURTHEST + 10, HERALD_WAL_DELIVER);
	assert_met(OLDER_RUN, PLACE - 1, FURTHEST + 10, HERALD_WAL_DELIVER);
	assert_met(OWN_RUN, PLACE - 1, FURTHEST + 10, HERALD_WAL_DELIVER);
}

/* Guards: what ends at `done` or before is not delivered again, of whatever run, and `furthest` does not count. */
static void
test_below_by_done(void **state UNUSED)
{
	assert_met(RUN, PLACE, DONE, HERALD_WAL_PASS_OVER);
	assert_met(OLDER_RUN, PLACE, DONE - 1, HERALD_WAL_PASS_OVER);
	assert_met(OWN_RUN, CUT - 1, DONE, HERALD_WAL_PASS_OVER);
	assert_met(RUN, PLACE, DONE + 1, HERALD_WAL_DELIVER);
	assert_met(OLDER_RUN, 0, DONE + 1, HERALD_WAL_DELIVER);
}

/* Guards: what is at the cut or beyond is for the queue, of this server's run only. */
static void
test_at_cut(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_int_equal(meet(&history, OWN_RUN, CUT - 1, FURTHEST + 1), HERALD_WAL_DELIVER);
	assert_int_equal(meet(&history, RUN, CUT, FURTHEST + 2), HERALD_WAL_DELIVER);
	assert_int_equal(meet(&history, OLDER_RUN, CUT + 1, FURTHEST + 3), HERALD_WAL_DELIVER);
	assert_false(history.has_left);
	assert_int_equal(meet(&history, OWN_RUN, CUT, FURTHEST + 4), HERALD_WAL_PASS_OVER);
	assert_true(history.has_left);
	assert_int_equal(meet(&history, OWN_RUN, CUT + 1, FURTHEST + 5), HERALD_WAL_PASS_OVER);
}

/* Guards: on the server of the position, what is between its place and the cut is delivered, and nothing else. */
static void
test_same_run(void **state UNUSED)
{
	for (uint64_t place = 0; place < CUT + 10; place++)
	{
		HeraldWalHistory history = history_new();

		history.own_run = RUN;
		assert_int_equal(meet(&history, RUN, place, FURTHEST + 1),
						 place >= PLACE && place < CUT ? HERALD_WAL_DELIVER : HERALD_WAL_PASS_OVER);
	}
}

/* Guards: the client may have received what is left to the queue, if that is not beyond what it has received. */
static void
test_left_and_received(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_met(OWN_RUN, CUT, DONE, HERALD_WAL_UNDECIDED);
	assert_met(OWN_RUN, CUT, FURTHEST, HERALD_WAL_UNDECIDED);
	assert_met(OWN_RUN, CUT, FURTHEST + 1, HERALD_WAL_PASS_OVER);

	/* Up to `done` also without a witness. */
	history.received.furthest = (HeraldCommitId) {0};
	history.received.from.wal = DONE;
	assert_int_equal(meet(&history, OWN_RUN, CUT, DONE), HERALD_WAL_UNDECIDED);
	assert_int_equal(meet(&history, OWN_RUN, CUT, DONE + 1), HERALD_WAL_PASS_OVER);
}

/* Guards: nothing is delivered behind a commit that is left to the queue. */
static void
test_behind_left(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_int_equal(meet(&history, OWN_RUN, CUT, FURTHEST + 1), HERALD_WAL_PASS_OVER);
	assert_int_equal(meet(&history, RUN, PLACE - 1, FURTHEST + 2), HERALD_WAL_PASS_OVER);
	assert_int_equal(herald_wal_history_commit(&history, (HeraldCommitId) {OWN_RUN, CUT - 2, FURTHEST + 3}, false),
					 HERALD_WAL_PASS_OVER);
	assert_int_equal(meet(&history, OWN_RUN, CUT - 1, FURTHEST + 4), HERALD_WAL_UNDECIDED);
}

/* Guards: other databases' commits are not delivered, and are witnesses. */
static void
test_other_database(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_int_equal(herald_wal_history_commit(&history, (HeraldCommitId) {RUN, PLACE, FURTHEST + 1}, false), HERALD_WAL_PASS_OVER);
	assert_int_equal(history.receipt.furthest.end, FURTHEST + 1);
	assert_false(history.has_witness);
	assert_int_equal(herald_wal_history_commit(&history, history.received.furthest, false), HERALD_WAL_PASS_OVER);
	assert_true(history.has_witness);
}

static bool
is_witness(uint64_t run, uint64_t place, uint64_t end)
{
	HeraldWalHistory history = history_new();

	(void) meet(&history, run, place, end);
	return history.has_witness;
}

/* Guards: [X3] only the very commit is the witness, wherever it belongs. */
static void
test_witness_commit(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_true(is_witness(RUN, WITNESS_PLACE, FURTHEST));
	assert_false(is_witness(OLDER_RUN, WITNESS_PLACE, FURTHEST));
	assert_false(is_witness(RUN, WITNESS_PLACE + 1, FURTHEST));
	assert_false(is_witness(RUN, WITNESS_PLACE, FURTHEST - 1));
	assert_false(is_witness(RUN, WITNESS_PLACE, FURTHEST + 1));

	history.own_run = RUN;
	history.cut = 0;
	assert_int_equal(meet(&history, RUN, WITNESS_PLACE, FURTHEST), HERALD_WAL_UNDECIDED);
	assert_true(history.has_witness);

	/* It remains the witness when more is met. */
	history = history_new();
	(void) meet(&history, RUN, WITNESS_PLACE, FURTHEST);
	(void) meet(&history, RUN, PLACE, FURTHEST + 1);
	assert_true(history.has_witness);
}

/* Guards: [X3] without a witness it is the anchor where reading begins, of the run that wrote it. */
static void
test_witness_anchor(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	herald_wal_history_anchor(&history, (HeraldWalAnchor) {FROM, RUN});
	assert_false(history.has_witness);
	history.received.furthest = (HeraldCommitId) {0};
	herald_wal_history_anchor(&history, (HeraldWalAnchor) {FROM + 1, RUN});
	assert_false(history.has_witness);
	herald_wal_history_anchor(&history, (HeraldWalAnchor) {FROM, OWN_RUN});
	assert_false(history.has_witness);
	(void) meet(&history, RUN, 0, FROM + 1);
	assert_false(history.has_witness);
	herald_wal_history_anchor(&history, (HeraldWalAnchor) {FROM, RUN});
	assert_true(history.has_witness);
}

/* Guards: the client's mark after the history has the last commit that the history met, and none that is left to the queue. */
static void
test_mark_after(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	(void) meet(&history, RUN, WITNESS_PLACE, FURTHEST);
	(void) meet(&history, RUN, PLACE - 1, FURTHEST + 2);
	assert_int_equal(history.receipt.furthest.end, FURTHEST + 2);
	assert_int_equal(history.receipt.furthest.place, PLACE - 1);
	(void) meet(&history, OWN_RUN, CUT, FURTHEST + 3);
	assert_int_equal(history.receipt.furthest.end, FURTHEST + 2);
	assert_int_equal(history.receipt.done, DONE);
	assert_int_equal(history.receipt.from.wal, FROM);
	assert_int_equal(history.received.furthest.end, FURTHEST);
}

/* Guards: where the queue is in the order of the WAL, all up to the last commit has been received; elsewhere not. */
static void
test_end_in_order(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	herald_wal_history_end(&history, false);
	assert_int_equal(history.receipt.done, DONE);
	herald_wal_history_end(&history, true);
	assert_int_equal(history.receipt.done, FURTHEST);

	/* Also if nothing was met. */
	history.receipt.furthest = (HeraldCommitId) {0};
	herald_wal_history_end(&history, true);
	assert_int_equal(history.receipt.done, FURTHEST);
	assert_int_equal(history.received.done, DONE);
}

/* Guards: a change of a setting concerns a client that has not received all up to there. */
static void
test_concerns(void **state UNUSED)
{
	HeraldWalHistory history = history_new();

	assert_false(herald_wal_history_concerns(&history, DONE));
	assert_true(herald_wal_history_concerns(&history, DONE + 1));
	assert_true(herald_wal_history_concerns(&history, FURTHEST));
	history.receipt.done = FURTHEST;
	assert_true(herald_wal_history_concerns(&history, FURTHEST));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_below_by_place),
		cmocka_unit_test(test_below_by_done),
		cmocka_unit_test(test_at_cut),
		cmocka_unit_test(test_same_run),
		cmocka_unit_test(test_left_and_received),
		cmocka_unit_test(test_behind_left),
		cmocka_unit_test(test_other_database),
		cmocka_unit_test(test_witness_commit),
		cmocka_unit_test(test_witness_anchor),
		cmocka_unit_test(test_mark_after),
		cmocka_unit_test(test_end_in_order),
		cmocka_unit_test(test_concerns),
	};

	return cmocka_run_group_tests_name("WAL history", tests, NULL, NULL);
}
