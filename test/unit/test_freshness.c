/*-------------------------------------------------------------------------
 *
 * test_freshness.c
 *	  Unit tests of freshness.c: each rule by itself, at several places of the
 *	  circle of transaction ids.
 *
 * Guards: a value is kept if, and only if, it may be kept.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

#include "freshness.h"

#define KEY			77u
#define SAME_BUCKET	(KEY + 3 * HERALD_FRESHNESS_BUCKETS)
#define OTHER		(KEY + 1)
#define RUNNING_MAX	8

/*
 * Where the ids of a test begin: 100 is base + 100.  No test uses ids that would
 * become 0, 1 or 2.
 */
static uint32_t base;

static const uint32_t bases[] = {0, UINT32_MAX - 90, UINT32_MAX - 121, INT32_MAX - 102, INT32_MAX};

static HeraldFreshness *
freshness_new(void)
{
	HeraldFreshness *freshness = memory_new(sizeof(HeraldFreshness));

	herald_freshness_init(freshness);
	return freshness;
}

/* A snapshot; then come the ids in progress, up to a 0.  Valid for the next 7 calls. */
static const HeraldVisibility *
sees(uint32_t xmin, uint32_t xmax, ...)
{
	static HeraldVisibility snapshots[8];
	static uint32_t running[8][RUNNING_MAX];
	static unsigned turn;
	unsigned	i = turn++ % 8;
	va_list		list;
	uint32_t	xid;

	snapshots[i] = (HeraldVisibility) {base + xmin, base + xmax, running[i], 0};
	va_start(list, xmax);
	while ((xid = va_arg(list, uint32_t)) != 0)
		running[i][snapshots[i].count++] = base + xid;
	va_end(list);
	return &snapshots[i];
}

static void
note(HeraldFreshness *freshness, uint32_t hash, uint32_t xid, uint32_t xmin)
{
	herald_freshness_note(freshness, hash, base + xid, xmin == 0 ? 0 : base + xmin);
}

/* Runs a test at each base. */
static void
at_all_bases(void (*test) (HeraldFreshness *freshness))
{
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++)
	{
		HeraldFreshness *freshness = freshness_new();

		base = bases[i];
		test(freshness);
		free(freshness);
	}
}

/* Guards: ids are compared on a circle. */
static void
test_precedes(void **state UNUSED)
{
	assert_true(herald_xid_precedes(3, 4));
	assert_false(herald_xid_precedes(4, 4));
	assert_false(herald_xid_precedes(4, 3));
	assert_true(herald_xid_precedes(UINT32_MAX, 3));
	assert_false(herald_xid_precedes(3, UINT32_MAX));
}

static void
one_message(HeraldFreshness *freshness)
{
	assert_true(herald_freshness_sees(freshness, KEY, sees(100, 100, 0)));
	note(freshness, KEY, 100, 100);

	/* In progress: it comes after the snapshot, or ran when the snapshot was taken. */
	assert_false(herald_freshness_sees(freshness, KEY, sees(100, 100, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(100, 102, 100, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(100, 103, 102, 100, 0)));

	/* Finished, as the snapshot sees it. */
	assert_true(herald_freshness_sees(freshness, KEY, sees(101, 101, 0)));
	assert_true(herald_freshness_sees(freshness, KEY, sees(101, 103, 101, 0)));

	/* Other buckets are not affected; another key of this bucket is. */
	assert_true(herald_freshness_sees(freshness, OTHER, sees(100, 100, 0)));
	assert_false(herald_freshness_sees(freshness, SAME_BUCKET, sees(100, 100, 0)));
}

/* Guards: a value is kept only if its snapshot sees the transactions that invalidated it. */
static void
test_one_message(void **state UNUSED)
{
	at_all_bases(one_message);
}

static void
a_range(HeraldFreshness *freshness)
{
	note(freshness, KEY, 103, 100);
	note(freshness, KEY, 101, 100);
	note(freshness, SAME_BUCKET, 105, 100);

	/* Each end, and ids in between. */
	assert_false(herald_freshness_sees(freshness, KEY, sees(101, 110, 101, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(102, 110, 109, 102, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(105, 110, 105, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(104, 104, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(105, 105, 0)));

	/* Only ids outside of the range, on both sides. */
	assert_true(herald_freshness_sees(freshness, KEY, sees(100, 110, 100, 106, 0)));
	assert_true(herald_freshness_sees(freshness, KEY, sees(106, 110, 106, 0)));
	assert_true(herald_freshness_sees(freshness, KEY, sees(100, 106, 100, 0)));
}

/* Guards: a bucket stands for all ids from its lowest to its highest. */
static void
test_range(void **state UNUSED)
{
	at_all_bases(a_range);
}

static void
raised(HeraldFreshness *freshness)
{
	const HeraldXidRange *range = &freshness->buckets[KEY];

	note(freshness, KEY, 100, 100);
	note(freshness, KEY, 104, 100);

	/* All have ended: the range begins again. */
	note(freshness, KEY, 110, 105);
	assert_int_equal(range->lowest, base + 110);
	assert_int_equal(range->highest, base + 110);

	/* Some have ended: the range begins no lower than the oldest that may be in progress. */
	note(freshness, KEY, 120, 110);
	note(freshness, KEY, 121, 115);
	assert_int_equal(range->lowest, base + 115);
	assert_int_equal(range->highest, base + 121);

	/* It has ended before its message is read. */
	note(freshness, KEY, 114, 116);
	note(freshness, OTHER, 114, 116);
	assert_int_equal(range->lowest, base + 115);
	assert_int_equal(freshness->buckets[OTHER].highest, 0);

	/* xmin is unknown: nothing is dropped. */
	note(freshness, KEY, 140, 0);
	assert_int_equal(range->lowest, base + 115);
	assert_int_equal(range->highest, base + 140);
	assert_int_equal(freshness->floor, base + 116);
}

/* Guards: a range is no longer than necessary. */
static void
test_raised(void **state UNUSED)
{
	at_all_bases(raised);
}

static void
seen(HeraldFreshness *freshness)
{
	const HeraldXidRange *range = &freshness->buckets[KEY];

	/* 100 runs for long.  An id that the snapshot sees is not recorded. */
	herald_freshness_note_seen(freshness, KEY, base + 103, sees(100, 105, 100, 0));
	assert_int_equal(range->highest, 0);
	herald_freshness_note_seen(freshness, OTHER, base + 103, sees(100, 105, 103, 100, 0));
	assert_int_equal(freshness->buckets[OTHER].highest, base + 103);

	/* The first of these snapshots is the latest: the older ones are refused. */
	assert_true(herald_freshness_sees(freshness, KEY, sees(100, 105, 100, 0)));
	assert_false(herald_freshness_sees(freshness, KEY, sees(100, 105, 100, 103, 0)));
	assert_false(herald_freshness_sees(freshness, OTHER, sees(100, 104, 100, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(100, 104, 100, 0)));

	/* A range grows by ids in progress, until a snapshot sees all of it. */
	herald_freshness_note_seen(freshness, KEY, base + 106, sees(100, 107, 100, 106, 0));
	assert_int_equal(range->lowest, base + 106);
	assert_int_equal(range->highest, base + 106);
	herald_freshness_note_seen(freshness, SAME_BUCKET, base + 112, sees(100, 110, 100, 106, 0));
	assert_int_equal(range->lowest, base + 106);
	assert_int_equal(range->highest, base + 112);
	herald_freshness_note_seen(freshness, KEY, base + 114, sees(100, 114, 100, 109, 0));
	assert_int_equal(range->lowest, base + 106);
	assert_int_equal(range->highest, base + 114);
	herald_freshness_note_seen(freshness, KEY, base + 116, sees(100, 116, 100, 0));
	assert_int_equal(range->lowest, base + 116);
	assert_int_equal(range->highest, base + 116);

	/* The floor does not go back, and is dropped when all ids before it have ended. */
	herald_freshness_note_seen(freshness, OTHER, base + 117, sees(100, 110, 100, 106, 0));
	assert_int_equal(freshness->floor_xmax, base + 116);
	assert_int_equal(freshness->floor_count, 1);
	assert_true(herald_freshness_advance(freshness, base + 115));
	assert_int_equal(freshness->floor_xmax, base + 116);
	assert_true(herald_freshness_advance(freshness, base + 116));
	assert_int_equal(freshness->floor_xmax, 0);

	/* A range that never ends begins no lower than the snapshot's xmin. */
	herald_freshness_note_seen(freshness, KEY, base + 120, sees(119, 120, 119, 0));
	assert_int_equal(range->lowest, base + 120);
	herald_freshness_note_seen(freshness, KEY, base + 130, sees(120, 130, 120, 0));
	herald_freshness_note_seen(freshness, KEY, base + 140, sees(125, 140, 125, 130, 0));
	assert_int_equal(range->lowest, base + 125);
}

/* Guards: ids that a snapshot sees are not recorded, and older snapshots are refused. */
static void
test_seen(void **state UNUSED)
{
	at_all_bases(seen);
}

static void
floors(HeraldFreshness *freshness)
{
	note(freshness, KEY, 100, 100);
	assert_false(herald_freshness_sees(freshness, OTHER, sees(99, 101, 99, 0)));
	note(freshness, KEY, 120, 110);
	assert_int_equal(freshness->floor, base + 110);

	/* The floor does not go back, and snapshots below it are refused. */
	note(freshness, KEY, 121, 105);
	assert_int_equal(freshness->floor, base + 110);
	assert_false(herald_freshness_sees(freshness, OTHER, sees(109, 125, 109, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(109, 125, 109, 0)));
	assert_true(herald_freshness_sees(freshness, OTHER, sees(110, 125, 110, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(110, 125, 110, 0)));

	assert_true(herald_freshness_advance(freshness, base + 112));
	assert_int_equal(freshness->floor, base + 112);
	assert_false(herald_freshness_sees(freshness, OTHER, sees(111, 125, 111, 0)));
}

/* Guards: nothing is kept under a snapshot to which a dropped id may be in progress. */
static void
test_floor(void **state UNUSED)
{
	at_all_bases(floors);
}

static void
missed(HeraldFreshness *freshness)
{
	const uint32_t committing[] = {base + 90, base + 102};
	uint32_t	room[3 + 2];

	/* 98, 100 and 103 have nothing in the queue yet; 90 has ended. */
	note(freshness, KEY, 100, 98);
	herald_freshness_join(freshness, sees(98, 104, 103, 98, 102, 100, 0), committing, 2, room);
	assert_true(herald_freshness_sees(freshness, KEY, sees(98, 101, 98, 100, 0)));

	assert_true(herald_freshness_sees_missed(freshness, sees(98, 104, 98, 100, 103, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(103, 110, 103, 105, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(104, 104, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(110, 120, 110, 111, 0)));

	/* 102 was about to commit... */
	assert_false(herald_freshness_sees_missed(freshness, sees(98, 104, 98, 100, 103, 102, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(102, 110, 102, 108, 0)));

	/* ...and others had ended, but not for an older snapshot. */
	assert_false(herald_freshness_sees_missed(freshness, sees(98, 104, 98, 99, 100, 103, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(97, 104, 97, 0)));

	/* 102 comes after the snapshot; then only 103 does, which is not missed. */
	assert_false(herald_freshness_sees_missed(freshness, sees(98, 101, 98, 100, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(98, 102, 98, 100, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(98, 103, 98, 100, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(98, 103, 98, 101, 0)));
}

/* Guards: nothing is kept under a snapshot that does not see all that was missed by joining. */
static void
test_missed(void **state UNUSED)
{
	at_all_bases(missed);
}

static void
missed_late(HeraldFreshness *freshness)
{
	const uint32_t committing[] = {base + 107, base + 105};
	uint32_t	room[1 + 2];

	/*
	 * No id after 103 has ended, so all are beyond the snapshot; but two were about to
	 * commit.
	 */
	herald_freshness_join(freshness, sees(100, 104, 100, 0), committing, 2, room);
	assert_false(herald_freshness_sees_missed(freshness, sees(100, 104, 100, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(104, 104, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(104, 107, 104, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(105, 109, 105, 108, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(107, 109, 107, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(100, 108, 100, 0)));
	assert_true(herald_freshness_sees_missed(freshness, sees(100, 120, 100, 104, 106, 108, 0)));

	/* Forgotten when no snapshot can see any of them in progress, and not before. */
	herald_freshness_advance(freshness, base + 107);
	assert_false(herald_freshness_sees_missed(freshness, sees(107, 109, 107, 0)));
	herald_freshness_advance(freshness, base + 108);
	assert_int_equal(freshness->missed_before, 0);
	assert_true(herald_freshness_sees_missed(freshness, sees(108, 109, 0)));
}

/* Guards: a transaction that was about to commit may be beyond the snapshot's xmax. */
static void
test_missed_late(void **state UNUSED)
{
	at_all_bases(missed_late);
}

/* A backend joins with `now`, which sees all that the backend has missed; `older` does not. */
static void
missed_between(const HeraldVisibility *older, const HeraldVisibility *now)
{
	HeraldFreshness *freshness = freshness_new();
	uint32_t	room[3];

	herald_freshness_join(freshness, now, NULL, 0, room);
	assert_false(herald_freshness_sees_missed(freshness, older));
	assert_true(herald_freshness_sees_missed(freshness, now));
	free(freshness);
}

/*
 * Guards: an id that is in a snapshot twice, as while it is being prepared, does not stand
 * for another.
 */
static void
test_id_twice(void **state UNUSED)
{
	const uint32_t running[] = {100, 102, 102};
	const HeraldVisibility now = {100, 103, running, 3};
	const HeraldVisibility older = {100, 101, running, 1};

	missed_between(&older, &now);	/* 101 */
}

/*
 * Guards: ids 0 to 2, which no transaction has, do not count as missed between two ids in
 * progress.
 */
static void
test_special_ids(void **state UNUSED)
{
	HeraldFreshness *freshness = freshness_new();
	const uint32_t running[] = {UINT32_MAX, 3};
	const HeraldVisibility now = {UINT32_MAX, 4, running, 2};
	const HeraldVisibility older = {UINT32_MAX, UINT32_MAX, NULL, 0};
	uint32_t	room[2];

	herald_freshness_join(freshness, &now, NULL, 0, room);
	assert_true(herald_freshness_sees_missed(freshness, &older));
	herald_freshness_join(freshness, &now, running, 1, room);
	assert_false(herald_freshness_sees_missed(freshness, &older));
	free(freshness);
}

/* Guards: a snapshot from long before the join is not compared id by id. */
static void
test_long_stretch(void **state UNUSED)
{
	const uint32_t running[] = {5000, UINT32_C(2000000000)};
	const HeraldVisibility now = {5000, UINT32_C(2000000001), running, 2};
	const HeraldVisibility older = {5000, 5000, NULL, 0};

	missed_between(&older, &now);
}

static void
swept(HeraldFreshness *freshness)
{
	const uint32_t step = UINT32_C(1) << 27;
	uint32_t	xid = 100;

	note(freshness, KEY, 100, 100);
	note(freshness, OTHER, 101 + 2 * step, 100);
	herald_freshness_advance(freshness, base + (xid += step));
	assert_int_equal(freshness->buckets[KEY].highest, base + 100);
	herald_freshness_advance(freshness, base + (xid += step));
	assert_int_equal(freshness->buckets[KEY].highest, 0);
	assert_int_equal(freshness->buckets[OTHER].highest, base + 101 + 2 * step);

	/* So any snapshot can be judged, even after a great number of ids. */
	note(freshness, KEY, xid + 1, xid);
	for (int i = 0; i < 100; i++)
	{
		xid += step;
		assert_true(herald_freshness_advance(freshness, base + xid));
		assert_true(herald_freshness_sees(freshness, KEY, sees(xid, xid, 0)));
		assert_true(herald_freshness_sees_missed(freshness, sees(xid, xid, 0)));
	}
}

/* Guards: ranges do not grow so old that they seem to be in the future. */
static void
test_sweep(void **state UNUSED)
{
	at_all_bases(swept);
}

static void
worn_out(HeraldFreshness *freshness)
{
	const uint32_t reach = UINT32_C(1) << 30;
	uint32_t	room[1];

	note(freshness, KEY, 1000, 1000);
	assert_true(herald_freshness_advance(freshness, base + 1000 + reach - 1));
	assert_true(herald_freshness_advance(freshness, base + 1000));
	assert_false(herald_freshness_advance(freshness, base + 1000 + 2 * reach - 1));

	/* Even if the xmin seems to be in reach again. */
	assert_false(herald_freshness_advance(freshness, base + 1000));
	assert_false(herald_freshness_sees(freshness, OTHER, sees(1000 + reach, 1000 + reach, 0)));
	assert_false(herald_freshness_sees_missed(freshness, sees(1000 + reach, 1000 + reach, 0)));

	herald_freshness_join(freshness, sees(1000, 1001, 1000, 0), NULL, 0, room);
	assert_true(herald_freshness_advance(freshness, base + 1000));
	assert_true(herald_freshness_sees_missed(freshness, sees(1000, 1001, 1000, 0)));

	/* Worn out by a message, with xmin known or not. */
	note(freshness, KEY, 1000 + reach + 1, 1000 + reach + 1);
	assert_false(herald_freshness_sees(freshness, OTHER, sees(2000, 2000, 0)));
	herald_freshness_join(freshness, sees(1000, 1001, 1000, 0), NULL, 0, room);
	note(freshness, KEY, 1000 + reach, 0);
	assert_false(herald_freshness_sees(freshness, OTHER, sees(2000, 2000, 0)));
	herald_freshness_init(freshness);
	note(freshness, KEY, 1000 + reach, 0);
	assert_true(herald_freshness_sees(freshness, OTHER, sees(2000, 2000, 0)));
}

/* Guards: a session that has received nothing for very long must join again. */
static void
test_worn_out(void **state UNUSED)
{
	at_all_bases(worn_out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_precedes),
		cmocka_unit_test(test_one_message),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_raised),
		cmocka_unit_test(test_seen),
		cmocka_unit_test(test_floor),
		cmocka_unit_test(test_missed),
		cmocka_unit_test(test_missed_late),
		cmocka_unit_test(test_id_twice),
		cmocka_unit_test(test_special_ids),
		cmocka_unit_test(test_long_stretch),
		cmocka_unit_test(test_sweep),
		cmocka_unit_test(test_worn_out),
	};

	return cmocka_run_group_tests_name("freshness", tests, NULL, NULL);
}
