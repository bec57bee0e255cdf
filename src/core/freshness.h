/*-------------------------------------------------------------------------
 *
 * freshness.h
 *	  Which values may be cached: never one that is stale, or will be.
 *
 * A transaction that changes something puts an invalidation with its id in the
 * queue before it commits.  So a backend that has read the queue knows of each change
 * that its snapshot can see, and has forgotten the old value.  What is left to
 * exclude is that the old value comes back: computed with a snapshot that does
 * not see the change, and kept until a later one does (the fill race).
 *
 * Hence the rule.  A value computed with snapshot S may be kept if no
 * transaction that has invalidated it, as far as the queue has been read, is
 * in progress as S sees it.  If one invalidates it later, the value is
 * forgotten then.
 *
 * All invalidating transactions would be too many to remember.  Each of a number
 * of buckets, chosen by hash, remembers the lowest and the highest of those that
 * some snapshot may see in progress: if any transaction between them is in
 * progress for S, the value is not kept.  That errs on the safe side only.
 *
 * A backend that joins the queue, or was overrun, has missed some.  What those have changed
 * is seen by S unless they are in progress for S; and a transaction that was
 * still in progress afterwards, and had not put its invalidations in the queue
 * when we joined, has not been missed.  So: whatever is in progress for S and
 * older than the join must be one of those.
 *
 * Transaction ids are compared modulo 2^32, as the server does.  That works for
 * those that are not too far apart: a backend that has read nothing for so long that
 * they are joins again (herald_freshness_advance).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FRESHNESS_H
#define HERALD_FRESHNESS_H

#include <stdbool.h>
#include <stdint.h>

/* How a snapshot sees the world: what it needs of the server's SnapshotData. */
typedef struct HeraldVisibility
{
	uint32_t	xmin;			/* all before are finished */
	uint32_t	xmax;			/* all from here on are in progress */
	const uint32_t *running;	/* top-level ones between that are in progress, in no order */
	uint32_t	count;
} HeraldVisibility;

/* Invalidations whose hashes end alike are taken for one. */
#define HERALD_FRESHNESS_BUCKETS	4096

typedef struct HeraldXidRange
{
	uint32_t	lowest;
	uint32_t	highest;		/* 0: empty */
} HeraldXidRange;

typedef struct HeraldFreshness
{
	/* No snapshot that sees older ones in progress is to be judged any more. */
	uint32_t	floor;			/* 0: not yet */
	uint32_t	swept;			/* the floor when old ranges were last removed; 0: not yet */
	bool		is_worn_out;	/* nothing may be kept, until the next join */

	/* Nor one that is older than the snapshot with these: see herald_freshness_note_seen(). */
	uint32_t	floor_xmax;		/* 0: not yet, or no longer */
	uint32_t	floor_count;

	/* See herald_freshness_join(). */
	uint32_t	missed_before;	/* 0: nothing was missed */
	uint32_t   *not_missed;		/* ones before that; sorted */
	uint32_t	not_missed_count;
	uint32_t   *also_missed;	/* ones from there on; sorted */
	uint32_t	also_missed_count;

	HeraldXidRange buckets[HERALD_FRESHNESS_BUCKETS];
} HeraldFreshness;

/* a before b, both transaction ids. */
static inline bool
herald_xid_precedes(uint32_t a, uint32_t b)
{
	return (int32_t) (a - b) < 0;
}

/* All is empty, and nothing was missed. */
extern void herald_freshness_init(HeraldFreshness *freshness);

/*
 * Everything that was invalidated before was missed.  committing: the
 * transactions that had invalidations in the queue when we joined it, and were
 * not over when that was asked, which was after joining; with them those that
 * are prepared, asked after the others.  now: a snapshot taken after asking.
 *
 * not_missed: room for now->count + committing_count numbers, for as long as the
 * structure is in use or until the next call.  (No more is written than one for
 * each transaction that is in progress.)
 */
extern void herald_freshness_join(HeraldFreshness *freshness, const HeraldVisibility *now,
								  const uint32_t *committing, uint32_t committing_count,
								  uint32_t *not_missed);

/*
 * A transaction invalidates what has this hash.  xmin: no snapshot that is in
 * use here, or will be, sees an older transaction in progress; 0: not known.
 */
extern void herald_freshness_note(HeraldFreshness *freshness, uint32_t hash, uint32_t xid,
								  uint32_t xmin);

/*
 * The same, with a snapshot instead of its xmin: no older one is to be judged
 * any more (it would be refused).  What that snapshot sees need not be remembered,
 * whatever else is in progress, and so a lot more may be kept.
 */
extern void herald_freshness_note_seen(HeraldFreshness *freshness, uint32_t hash, uint32_t xid,
									   const HeraldVisibility *oldest);

/*
 * As herald_freshness_note() about xmin, without a message: to be called whenever something that is
 * cached is about to be used.  That keeps the structure from growing old where
 * transactions go by, and hardly anything is invalidated.
 *
 * False: this is so long after the last time, 2^30 transactions, that ids can
 * be compared no more.  Nothing may be kept until the next join.
 */
extern bool herald_freshness_advance(HeraldFreshness *freshness, uint32_t xmin);

/* Did the snapshot see all that was missed?  Without that nothing may be kept. */
extern bool herald_freshness_sees_missed(const HeraldFreshness *freshness,
										 const HeraldVisibility *snapshot);

/* Does the snapshot see everything that was noted with this hash? */
extern bool herald_freshness_sees(const HeraldFreshness *freshness, uint32_t hash,
								  const HeraldVisibility *snapshot);

#endif							/* HERALD_FRESHNESS_H */
