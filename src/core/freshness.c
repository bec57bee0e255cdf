/*-------------------------------------------------------------------------
 *
 * freshness.c
 *	  Which values may be cached: never one that is stale, or will be.
 *
 * What the caller does.  To use a value: take a snapshot S', read the queue to
 * its end, then look.  To keep one: compute it with a snapshot S, which is held
 * until then, ask if it may be kept, and keep it, with nothing read between.
 * (If parts of it were computed with later snapshots, S is the first of them.)
 * A transaction that changes a value puts the message in the queue first, and
 * then commits.
 *
 * Why no value that is used under S' lacks the change of a transaction X that S'
 * sees.  X had left the array of those in progress when S' was taken, and its
 * message was in the queue even before.  So it has been read, or was missed, and
 * either way what was kept before that has been forgotten.  The value was kept
 * afterwards, and then this was asked:
 *
 *	 Read: X is in the range of its bucket, or was dropped from it, or not even
 *	 entered.  In the range: as S was allowed, X is not in progress for it.
 *	 Dropped: as X precedes an xmin, and then it precedes the floor, which S.xmin
 *	 does not; or as some snapshot sees it, and S is not older than that one.
 *
 *	 Missed, and over when `now` was taken, after joining: X precedes now.xmax,
 *	 and is not among now.running.  So it is not among not_missed, and as S was
 *	 allowed, not in progress for it.
 *
 *	 Missed, and not over then: it had announced itself in `committing` before its
 *	 message, and it stays there until it is over, or is among the prepared ones,
 *	 which were asked after that, and stays there until it is over.  So it was found
 *	 there; and after a restart, when all are missed, among the prepared ones.  If it
 *	 precedes now.xmax it was taken from not_missed, if not it is in
 *	 also_missed, and again it is not in progress for S.  (There are such, since
 *	 xmax is one more than the latest that has ended: all that run may be beyond.)
 *
 * So X is over for S, and S sees its change, as S' does, and the value has it.
 * If X has rolled back there is nothing to see.  If X begins, or puts its
 * message in the queue, after the value was kept, the message is read before the
 * value is used under a snapshot that sees X.  What the own transaction has
 * changed, and its snapshots do see while it is in progress, is the caller's
 * business.
 *
 * The floor.  What is dropped is in progress for no snapshot that is in use, or
 * will be taken; but one may be taken over from elsewhere that is older, or the
 * caller has named one that is not its oldest.  Those are refused; the floor is
 * all that needs to be known of what was dropped.  After a join it is not
 * needed: what precedes it was missed.
 *
 * The price.  If only xmin is known, one long transaction keeps ranges from being
 * emptied.  They grow, and every other transaction that takes a while will be
 * in the midst of most of them.  With 100 short transactions at a time, 10,000
 * invalidations/s of 1,000 keys, of those values that could be kept are kept:
 *
 *									 by xmin		 by snapshot
 *	 nothing else					 84 %			 99.9 %
 *	 one long transaction			 62 %			 99.9 %
 *	 and one at a time of 1 s		 8 %			 99.9 %
 *	 and 5 at a time of 1 s			 0 %			 99.9 %
 *
 * The circle.  What is compared must be less than 2^31 apart.  Ids that the
 * server has in use at one time are.  But a range that nobody has touched for
 * long would seem to be in the future one day, grow to span half the circle,
 * and no longer contain what it should.  So old ranges are emptied as the floor
 * moves on; and if it has not moved for so long that it cannot be told from
 * one that has gone back, nothing may be kept until the next join.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "freshness.h"

#include <stdlib.h>
#include <string.h>

/* Old ranges are looked for each time that the floor has moved by this. */
#define SWEEP_DISTANCE		(UINT32_C(1) << 28)

/* Ids that are further from where that was last done are not compared. */
#define REACH				(UINT32_C(1) << 30)

/* Ids below are never those of transactions. */
#define FIRST_NORMAL_XID	3

static void widen(HeraldXidRange *range, uint32_t xid);
static void raise_lowest(HeraldXidRange *range, uint32_t xmin);
static void raise_floor_to(HeraldFreshness *freshness, const HeraldVisibility *snapshot);
static bool is_older(const HeraldVisibility *snapshot, uint32_t xmax, uint32_t count);
static bool sees_range(const HeraldXidRange *range, const HeraldVisibility *snapshot);
static bool is_in_reach(HeraldFreshness *freshness, uint32_t xid);
static void sweep(HeraldFreshness *freshness);
static void forget_what_was_missed(HeraldFreshness *freshness);
static bool is_missed(const HeraldFreshness *freshness, uint32_t xid);
static bool is_before_floor(const HeraldFreshness *freshness, const HeraldVisibility *snapshot);
static uint32_t count_preceding(const uint32_t *sorted, uint32_t count, uint32_t xid);
static uint32_t remove_duplicates(uint32_t *sorted, uint32_t count);
static bool contains(const uint32_t *sorted, uint32_t count, uint32_t xid);
static uint32_t xids_between(uint32_t from, uint32_t to);
static int	compare_xids(const void *a, const void *b);


void
herald_freshness_init(HeraldFreshness *freshness)
{
	memset(freshness, 0, sizeof(*freshness));
}

void
herald_freshness_join(HeraldFreshness *freshness, const HeraldVisibility *now,
					  const uint32_t *committing, uint32_t committing_count,
					  uint32_t *not_missed)
{
	uint32_t	count = 0;
	uint32_t	also_count = 0;

	/* What was noted was missed now, too: nothing of it is needed, nor the floor. */
	herald_freshness_init(freshness);
	freshness->swept = now->xmin;
	freshness->missed_before = now->xmax;

	for (uint32_t i = 0; i < now->count; i++)
	{
		bool		is_committing = false;

		for (uint32_t c = 0; c < committing_count && !is_committing; c++)
			is_committing = committing[c] == now->running[i];
		if (!is_committing)
			not_missed[count++] = now->running[i];
	}
	for (uint32_t c = 0; c < committing_count; c++)
		if (!herald_xid_precedes(committing[c], now->xmax))
			not_missed[count + also_count++] = committing[c];

	freshness->not_missed = not_missed;
	freshness->not_missed_count = count;
	freshness->also_missed = not_missed + count;
	freshness->also_missed_count = also_count;
	qsort(freshness->not_missed, count, sizeof(uint32_t), compare_xids);
	qsort(freshness->also_missed, also_count, sizeof(uint32_t), compare_xids);

	/* As they are counted: an id that is just being prepared is there twice. */
	freshness->not_missed_count = remove_duplicates(freshness->not_missed, count);
}

void
herald_freshness_note(HeraldFreshness *freshness, uint32_t hash, uint32_t xid, uint32_t xmin)
{
	HeraldXidRange *range = &freshness->buckets[hash % HERALD_FRESHNESS_BUCKETS];

	if (xmin != 0)
	{
		if (!herald_freshness_advance(freshness, xmin) || herald_xid_precedes(xid, xmin))
			return;
		if (range->highest != 0 && herald_xid_precedes(range->highest, xmin))
			range->highest = 0;
	}
	else if (!is_in_reach(freshness, xid))
		return;

	widen(range, xid);
	if (xmin != 0)
		raise_lowest(range, xmin);
}

void
herald_freshness_note_seen(HeraldFreshness *freshness, uint32_t hash, uint32_t xid,
						   const HeraldVisibility *oldest)
{
	HeraldXidRange *range = &freshness->buckets[hash % HERALD_FRESHNESS_BUCKETS];
	const HeraldXidRange alone = {xid, xid};

	if (!herald_freshness_advance(freshness, oldest->xmin))
		return;
	raise_floor_to(freshness, oldest);
	if (sees_range(range, oldest))
		range->highest = 0;
	if (!sees_range(&alone, oldest))
		widen(range, xid);
	raise_lowest(range, oldest->xmin);
}

bool
herald_freshness_advance(HeraldFreshness *freshness, uint32_t xmin)
{
	if (!is_in_reach(freshness, xmin))
		return false;
	if (freshness->floor != 0 && !herald_xid_precedes(freshness->floor, xmin))
		return true;

	freshness->floor = xmin;
	if (freshness->floor_xmax != 0 && !herald_xid_precedes(xmin, freshness->floor_xmax))
		freshness->floor_xmax = 0;
	if (freshness->missed_before != 0)
		forget_what_was_missed(freshness);
	if (!herald_xid_precedes(xmin, freshness->swept + SWEEP_DISTANCE))
		sweep(freshness);
	return true;
}

bool
herald_freshness_sees_missed(const HeraldFreshness *freshness, const HeraldVisibility *snapshot)
{
	uint32_t	before = freshness->missed_before;

	if (freshness->is_worn_out || is_before_floor(freshness, snapshot))
		return false;
	if (before == 0)
		return true;

	/* Those that are in progress as they come after the snapshot... */
	if (herald_xid_precedes(snapshot->xmax, before) &&
		xids_between(snapshot->xmax, before) !=
		freshness->not_missed_count - count_preceding(freshness->not_missed,
													  freshness->not_missed_count,
													  snapshot->xmax))
		return false;
	if (freshness->also_missed_count > 0 &&
		!herald_xid_precedes(freshness->also_missed[freshness->also_missed_count - 1],
							 snapshot->xmax))
		return false;

	/* ...and those that were running when it was taken. */
	for (uint32_t i = 0; i < snapshot->count; i++)
		if (is_missed(freshness, snapshot->running[i]))
			return false;
	return true;
}

bool
herald_freshness_sees(const HeraldFreshness *freshness, uint32_t hash,
					  const HeraldVisibility *snapshot)
{
	return !freshness->is_worn_out && !is_before_floor(freshness, snapshot) &&
		sees_range(&freshness->buckets[hash % HERALD_FRESHNESS_BUCKETS], snapshot);
}

static void
widen(HeraldXidRange *range, uint32_t xid)
{
	if (range->highest == 0)
		range->lowest = range->highest = xid;
	if (herald_xid_precedes(xid, range->lowest))
		range->lowest = xid;
	if (herald_xid_precedes(range->highest, xid))
		range->highest = xid;
}

static void
raise_lowest(HeraldXidRange *range, uint32_t xmin)
{
	if (herald_xid_precedes(range->lowest, xmin))
		range->lowest = xmin;
}

static void
raise_floor_to(HeraldFreshness *freshness, const HeraldVisibility *snapshot)
{
	if (freshness->floor_xmax != 0 &&
		is_older(snapshot, freshness->floor_xmax, freshness->floor_count))
		return;
	freshness->floor_xmax = snapshot->xmax;
	freshness->floor_count = snapshot->count;
}

/*
 * Was it taken before the one with these?  Whenever a transaction ends, xmax
 * moves on, or one that was running below it is no longer.
 */
static bool
is_older(const HeraldVisibility *snapshot, uint32_t xmax, uint32_t count)
{
	return herald_xid_precedes(snapshot->xmax, xmax) ||
		(snapshot->xmax == xmax && snapshot->count > count);
}

/* Is none of these in progress for the snapshot? */
static bool
sees_range(const HeraldXidRange *range, const HeraldVisibility *snapshot)
{
	if (range->highest == 0 || herald_xid_precedes(range->highest, snapshot->xmin))
		return true;
	if (!herald_xid_precedes(range->highest, snapshot->xmax))
		return false;

	for (uint32_t i = 0; i < snapshot->count; i++)
		if (!herald_xid_precedes(snapshot->running[i], range->lowest) &&
			!herald_xid_precedes(range->highest, snapshot->running[i]))
			return false;
	return true;
}

/* Can this id be compared with what is kept here?  Else it is all worn out. */
static bool
is_in_reach(HeraldFreshness *freshness, uint32_t xid)
{
	if (freshness->swept == 0)
		freshness->swept = xid;
	if (xid - freshness->swept >= REACH && freshness->swept - xid >= REACH)
		freshness->is_worn_out = true;
	return !freshness->is_worn_out;
}

/* Empty the buckets that nobody needs any more. */
static void
sweep(HeraldFreshness *freshness)
{
	for (uint32_t i = 0; i < HERALD_FRESHNESS_BUCKETS; i++)
	{
		HeraldXidRange *range = &freshness->buckets[i];

		if (range->highest != 0 && herald_xid_precedes(range->highest, freshness->floor))
			range->highest = 0;
	}
	freshness->swept = freshness->floor;
}

/* If every snapshot from the floor on sees all of it. */
static void
forget_what_was_missed(HeraldFreshness *freshness)
{
	uint32_t	also = freshness->also_missed_count;

	if (!herald_xid_precedes(freshness->floor, freshness->missed_before) &&
		(also == 0 || herald_xid_precedes(freshness->also_missed[also - 1], freshness->floor)))
		freshness->missed_before = 0;
}

static bool
is_missed(const HeraldFreshness *freshness, uint32_t xid)
{
	if (herald_xid_precedes(xid, freshness->missed_before))
		return !contains(freshness->not_missed, freshness->not_missed_count, xid);
	return contains(freshness->also_missed, freshness->also_missed_count, xid);
}

static bool
is_before_floor(const HeraldFreshness *freshness, const HeraldVisibility *snapshot)
{
	return (freshness->floor != 0 && herald_xid_precedes(snapshot->xmin, freshness->floor)) ||
		(freshness->floor_xmax != 0 &&
		 is_older(snapshot, freshness->floor_xmax, freshness->floor_count));
}

static uint32_t
count_preceding(const uint32_t *sorted, uint32_t count, uint32_t xid)
{
	uint32_t	low = 0;
	uint32_t	high = count;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (herald_xid_precedes(sorted[middle], xid))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns how many are left. */
static uint32_t
remove_duplicates(uint32_t *sorted, uint32_t count)
{
	uint32_t	left = 0;

	for (uint32_t i = 0; i < count; i++)
		if (left == 0 || sorted[left - 1] != sorted[i])
			sorted[left++] = sorted[i];
	return left;
}

static bool
contains(const uint32_t *sorted, uint32_t count, uint32_t xid)
{
	uint32_t	place = count_preceding(sorted, count, xid);

	return place < count && sorted[place] == xid;
}

/* How many ids transactions can have, from the first up to before the second. */
static uint32_t
xids_between(uint32_t from, uint32_t to)
{
	return to - from - (to < from ? FIRST_NORMAL_XID : 0);
}

static int
compare_xids(const void *a, const void *b)
{
	uint32_t	left = *(const uint32_t *) a;
	uint32_t	right = *(const uint32_t *) b;

	return left == right ? 0 : herald_xid_precedes(left, right) ? -1 : 1;
}
