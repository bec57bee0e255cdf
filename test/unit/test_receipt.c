/*-------------------------------------------------------------------------
 *
 * test_receipt.c
 *	  Unit tests of receipt.c: each rule, and what is true of all marks.
 *
 * Guards: a mark never says less than before, except where a reader of the WAL is at an earlier place; and it always has
 * a commit or an anchor of which another server's WAL can be seen to be the same.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "receipt.h"

#define MARKS			200000
#define OPERATIONS		20
#define WAL_MAX			24		/* a small WAL: many records of two marks are the same */
#define OWN_RUN			1
#define OTHER_RUN		2

static const HeraldWalAnchor no_anchor = {0};
static const HeraldCommitId no_commit = {0};

static unsigned seed;

static unsigned
below(unsigned limit)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % limit;
}

/* One record is at each place of the WAL: so what ends there, or begins there, is always the same. */
static HeraldCommitId
commit_at(uint64_t end)
{
	return end == 0 ? no_commit : (HeraldCommitId) {OWN_RUN + end % 2, end * 7 % 11, end};
}

static HeraldWalAnchor
anchor_at(uint64_t wal)
{
	return wal == 0 ? no_anchor : (HeraldWalAnchor) {wal, OWN_RUN + wal % 2};
}

static HeraldReceipt
mark_of(uint64_t from, uint64_t done, uint64_t furthest)
{
	return (HeraldReceipt) {.from = anchor_at(from),.done = done,.furthest = commit_at(furthest)};
}

static void
assert_mark(HeraldReceipt mark, uint64_t from, uint64_t done, uint64_t furthest)
{
	HeraldReceipt expected = mark_of(from, done, furthest);

	assert_memory_equal(&mark, &expected, sizeof(mark));
}

static uint64_t
later_of(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* [X3] */
static bool
is_sound(const HeraldReceipt *mark)
{
	return (mark->furthest.end == 0 || mark->furthest.end > mark->from.wal) &&
		mark->done <= later_of(mark->furthest.end, mark->from.wal);
}

static HeraldReceipt
random_mark(void)
{
	uint64_t	from = below(WAL_MAX);
	uint64_t	furthest = below(2) == 0 ? 0 : from + 1 + below(WAL_MAX - (unsigned) from);

	return mark_of(from, below((unsigned) later_of(from, furthest) + 1), furthest);
}

/* Guards: the witness is the commit that ends last, and is beyond `from`. */
static void
test_witness(void **state UNUSED)
{
	HeraldReceipt mark = mark_of(10, 10, 0);

	herald_receipt_witness(&mark, no_commit);
	herald_receipt_witness(&mark, commit_at(9));
	herald_receipt_witness(&mark, commit_at(10));
	assert_mark(mark, 10, 10, 0);
	herald_receipt_witness(&mark, commit_at(12));
	assert_mark(mark, 10, 10, 12);
	herald_receipt_witness(&mark, commit_at(11));
	herald_receipt_witness(&mark, (HeraldCommitId) {OTHER_RUN, 99, 12});
	assert_mark(mark, 10, 10, 12);
	herald_receipt_witness(&mark, commit_at(15));
	assert_mark(mark, 10, 10, 15);
}

/* Guards: what another run has committed comes in the order of the WAL, and what this run has does not. */
static void
test_receive_own_and_other(void **state UNUSED)
{
	HeraldReceipt mark = mark_of(10, 10, 0);

	herald_receipt_receive(&mark, (HeraldCommitId) {OWN_RUN, 3, 15}, OWN_RUN);
	assert_int_equal(mark.done, 10);
	assert_int_equal(mark.furthest.end, 15);
	herald_receipt_receive(&mark, (HeraldCommitId) {OTHER_RUN, 4, 13}, OWN_RUN);
	assert_int_equal(mark.done, 13);
	assert_int_equal(mark.furthest.end, 15);
	herald_receipt_receive(&mark, (HeraldCommitId) {OTHER_RUN, 5, 18}, OWN_RUN);
	assert_int_equal(mark.done, 18);
	assert_int_equal(mark.furthest.end, 18);
	assert_int_equal(mark.furthest.place, 5);
	herald_receipt_receive(&mark, (HeraldCommitId) {OTHER_RUN, 6, 17}, OWN_RUN);
	assert_int_equal(mark.done, 18);
	herald_receipt_receive(&mark, (HeraldCommitId) {OTHER_RUN, 7, 0}, OWN_RUN);
	assert_int_equal(mark.done, 18);
	assert_int_equal(mark.furthest.end, 18);
	assert_int_equal(mark.from.wal, 10);
}

/* Guards: [X1] reading begins at an anchor, up to which all has been received; a witness before it is needed no more. */
static void
test_reach(void **state UNUSED)
{
	HeraldReceipt mark = {0};

	herald_receipt_reach(&mark, anchor_at(10), anchor_at(10));
	assert_mark(mark, 10, 10, 0);
	herald_receipt_reach(&mark, anchor_at(5), anchor_at(5));
	assert_mark(mark, 10, 10, 0);

	mark = mark_of(10, 12, 15);
	herald_receipt_reach(&mark, anchor_at(11), anchor_at(11));
	assert_mark(mark, 11, 12, 15);
	herald_receipt_reach(&mark, anchor_at(14), anchor_at(14));
	assert_mark(mark, 14, 14, 15);
	herald_receipt_reach(&mark, anchor_at(15), anchor_at(15));
	assert_mark(mark, 15, 15, 0);
}

/* Guards: what a relay says is taken together: the anchor, and its last commit, which is a witness if it is beyond that. */
static void
test_relay(void **state UNUSED)
{
	HeraldReceipt mark = {0};

	herald_receipt_relay(&mark, anchor_at(5), no_commit);
	assert_mark(mark, 5, 5, 0);
	herald_receipt_relay(&mark, anchor_at(5), commit_at(8));
	assert_mark(mark, 5, 8, 8);
	herald_receipt_relay(&mark, anchor_at(8), commit_at(8));
	assert_mark(mark, 8, 8, 0);
	herald_receipt_relay(&mark, anchor_at(10), commit_at(8));
	assert_mark(mark, 10, 10, 0);
	herald_receipt_relay(&mark, anchor_at(9), commit_at(9));
	assert_mark(mark, 10, 10, 0);
	herald_receipt_relay(&mark, anchor_at(9), commit_at(12));
	assert_mark(mark, 10, 12, 12);
}

/* Guards: a reader of the WAL has received all up to its commit, and begins at the latest anchor that is good for that. */
static void
test_read(void **state UNUSED)
{
	HeraldReceipt mark = mark_of(10, 10, 18);

	herald_receipt_read(&mark, no_anchor, commit_at(12));
	assert_mark(mark, 10, 12, 18);
	herald_receipt_read(&mark, anchor_at(9), commit_at(13));
	assert_mark(mark, 10, 13, 18);
	herald_receipt_read(&mark, anchor_at(14), commit_at(16));
	assert_mark(mark, 14, 16, 18);
	herald_receipt_read(&mark, anchor_at(18), commit_at(20));
	assert_mark(mark, 18, 20, 20);
}

/* Guards: of two channels a reader claims what it has received of both; and what it has received of either is the witness. */
static void
test_go_back(void **state UNUSED)
{
	const HeraldReceipt unusable = {.from = {.wal = 5},.done = 5};
	HeraldReceipt receipt = mark_of(10, 12, 15);
	const HeraldReceipt begins_earlier = mark_of(9, 14, 14);
	const HeraldReceipt done_earlier = mark_of(11, 11, 20);
	HeraldReceipt zero = {0};

	herald_receipt_go_back(&receipt, &begins_earlier);
	assert_mark(receipt, 9, 12, 15);
	herald_receipt_go_back(&receipt, &done_earlier);
	assert_mark(receipt, 9, 11, 20);
	herald_receipt_go_back(&receipt, &unusable);
	assert_memory_equal(&receipt, &unusable, sizeof(receipt));
	herald_receipt_go_back(&receipt, &begins_earlier);
	assert_memory_equal(&receipt, &unusable, sizeof(receipt));
	herald_receipt_go_back(&zero, &begins_earlier);
	assert_true(zero.from.wal == 0 && zero.furthest.end == 0);
	seed = 2;
	for (int i = 0; i < MARKS; i++)
	{
		HeraldReceipt one = random_mark();
		const HeraldReceipt two = random_mark();
		const HeraldReceipt before = one;

		herald_receipt_go_back(&one, &two);
		assert_true(one.from.wal <= before.from.wal && one.done <= before.done);
		if (one.furthest.end != 0)
			assert_true(one.furthest.end > one.from.wal);
	}
}

/* Guards: joined marks say what either said, and nothing else; in whatever order they are joined. */
static void
test_join_is_union(void **state UNUSED)
{
	seed = 1;
	for (int i = 0; i < MARKS; i++)
	{
		const HeraldReceipt one = random_mark();
		const HeraldReceipt two = random_mark();
		const HeraldReceipt three = random_mark();
		HeraldReceipt joined = one;
		HeraldReceipt other = two;
		uint64_t	from = later_of(one.from.wal, two.from.wal);
		uint64_t	furthest = later_of(one.furthest.end, two.furthest.end);

		assert_true(is_sound(&one));
		herald_receipt_join(&joined, &two);
		assert_mark(joined, from, later_of(one.done, two.done), furthest > from ? furthest : 0);
		assert_true(is_sound(&joined));

		herald_receipt_join(&other, &one);
		assert_memory_equal(&joined, &other, sizeof(joined));
		herald_receipt_join(&joined, &two);
		herald_receipt_join(&joined, &one);
		herald_receipt_join(&joined, &joined);
		assert_memory_equal(&joined, &other, sizeof(joined));

		herald_receipt_join(&joined, &three);
		other = two;
		herald_receipt_join(&other, &three);
		herald_receipt_join(&other, &one);
		assert_memory_equal(&joined, &other, sizeof(joined));
	}
}

static void
random_operation(HeraldReceipt *mark)
{
	HeraldWalAnchor anchor = anchor_at(1 + below(WAL_MAX));
	HeraldCommitId commit = commit_at(below(WAL_MAX + 1));
	HeraldReceipt other = random_mark();

	switch (below(6))
	{
		case 0:
			herald_receipt_witness(mark, commit);
			break;
		case 1:
			herald_receipt_receive(mark, commit, OWN_RUN);
			break;
		case 2:
			herald_receipt_reach(mark, anchor, anchor);
			break;
		case 3:
			herald_receipt_relay(mark, anchor, commit);
			break;
		case 4:
			/* A reader meets what is beyond `done` and beyond its anchor. */
			if (commit.end > mark->done && commit.end > anchor.wal && commit.end > mark->from.wal)
				herald_receipt_read(mark, anchor, commit);
			break;
		default:
			herald_receipt_join(mark, &other);
	}
}

/* Guards: whatever happens to a mark, it does not go back, and [X3] `done` is an anchor or not beyond the witness. */
static void
test_marks_stay_sound(void **state UNUSED)
{
	seed = 2;
	for (int i = 0; i < MARKS / 10; i++)
	{
		HeraldReceipt mark = {0};

		for (int operation = 0; operation < OPERATIONS; operation++)
		{
			const HeraldReceipt before = mark;

			random_operation(&mark);
			assert_true(is_sound(&mark));
			assert_true(mark.from.wal >= before.from.wal && mark.done >= before.done);
			assert_true(mark.furthest.end >= before.furthest.end ||
						(mark.furthest.end == 0 && before.furthest.end <= mark.from.wal));
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_witness),
		cmocka_unit_test(test_receive_own_and_other),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_relay),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_go_back),
		cmocka_unit_test(test_join_is_union),
		cmocka_unit_test(test_marks_stay_sound),
	};

	return cmocka_run_group_tests_name("WAL mark", tests, NULL, NULL);
}
