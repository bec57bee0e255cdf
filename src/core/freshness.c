/*-------------------------------------------------------------------------
 *
 * freshness.c
 *	  Decides which values may be cached: none that is stale or will be.
 *
 * Duties of the caller.  To use a value: take a snapshot S', read the queue to its end, then
 * look the value up.  To keep a value: compute it with a snapshot S, hold S, ask whether the
 * value may be kept, and keep it, without reading the queue in between.  (If parts of the
 * value were computed with later snapshots, S is the first of them.)  A transaction that
 * changes a value puts its message in the queue first, and then commits.
 *
 * Proof that no value used under S' lacks the change of a transaction X that S' sees.  X was
 * no longer in progress when S' was taken, and its message was in the queue before that.  So
 * the message has been read, or was missed, and in both cases the values kept before have been
 * dropped.  The value was kept afterwards, and then one of these cases held:
 *
 *	 Read: X is in the range of its bucket, or was dropped from it, or never entered it.  In
 *	 the range: since S was accepted, X is not in progress for S.  Dropped or not entered:
 *	 either X precedes an xmin, and so precedes the floor, which S.xmin does not; or some
 *	 snapshot sees X, and S is not older than that snapshot.
 *
 *	 Missed, and over when `now` was taken, after joining: X precedes now.xmax, and is not
 *	 among now.running.  So X is not among not_missed, and since S was accepted, X is not in
 *	 progress for S.
 *
 *	 Missed, and not over then: X announced itself in `committing` before its message.  It
 *	 stays there until it is over, or until it is among the prepared transactions, which were
 *	 collected later and contain it until it is over.  So it was found in one of the two; after
 *	 a restart, when all messages are missed, it was found among the prepared ones.  If X
 *	 precedes now.xmax it was left out of not_missed, else it is in also_missed, and again it
 *	 is not in progress for S.  (The second case exists because xmax is one more than the
 *	 latest id that has ended: running transactions may have higher ids.)
 *
 * So X is over for S, S sees X's change as S' does, and the value contains it.  If X has
 * rolled back there is no change.  If X begins, or puts its message in the queue, after the
 * value was kept, the message is read before the value is used under a snapshot that sees X.
 * The caller must handle changes of its own transaction, which its snapshots see while it is
 * in progress.
 *
 * The floor.  A dropped transaction is in progress for no snapshot that is in use or will be
 * taken.  But an older snapshot may be imported, or the caller may have named a snapshot that
 * is not its oldest.  Such snapshots are refused; for this it is enough to remember the floor
 * instead of the dropped transactions.  After a join the floor is not needed: all transactions
 * that precede it were missed.
 *
 * The cost.  If only xmin is known, one long transaction keeps ranges from being emptied.
 * They grow, and every other transaction of some duration is inside most of them.  With 100
 * concurrent short transactions and 10,000 invalidations/s of 1,000 keys, this share of
 * the values that could be kept is kept:
 *
 *									 by xmin		 by snapshot
 *	 nothing else					 84 %			 99.9 %
 *	 one long transaction			 62 %			 99.9 %
 *	 and one at a time of 1 s		 8 %			 99.9 %
 *	 and 5 at a time of 1 s			 0 %			 99.9 %
 *
 * Wraparound.  Ids that are compared must be less than 2^31 apart.  Ids that the server uses
 * at one time are.  But a range that has not changed for long would one day seem to be in the
 * future, grow to span half of the id space, and no longer contain the ids that it should.  So
 * old ranges are emptied as the floor advances.  If the floor has not moved for 2^30 ids,
 * nothing may be kept until the next join: a new floor could no longer be distinguished from
 * an older one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "freshness.h"

#include <stdlib.h>
#include <string.h>

/* Old ranges are emptied each time the floor has moved by this distance. */
#define SWEEP_DISTANCE		(UINT32_C(1) << 28)

/* Ids further than this from the floor at that time are not compared. */
#define REACH				(UINT32_C(1) << 30)

/* Lower ids are never those of ordinary transactions. */
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

	/*
	 * All that was noted now counts as missed, so neither the ranges nor the
	 * floor are needed.
	 */
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

	/* The ids are counted, and one that is being prepared may occur twice. */
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

	/*
	 * First the transactions that are in progress for the snapshot because of
	 * its xmax...
	 */
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

	/* ...then those that were running when it was taken. */
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
 * Was this snapshot taken before the one with these values?  Whenever a transaction ends,
 * either xmax advances, or the number of running transactions below xmax decreases.
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

/*
 * Can this id be compared with the ids in this structure?  If not, the structure is worn out.
 */
static bool
is_in_reach(HeraldFreshness *freshness, uint32_t xid)
{
	if (freshness->swept == 0)
		freshness->swept = xid;
	if (xid - freshness->swept >= REACH && freshness->swept - xid >= REACH)
		freshness->is_worn_out = true;
	return !freshness->is_worn_out;
}

/* Empty the buckets that are no longer needed. */
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

/* Do so only if each snapshot that is not below the floor sees all missed transactions. */
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

/* Returns the number of ids that are left. */
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

/* The number of possible transaction ids from `from` up to, but not including, `to`. */
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
