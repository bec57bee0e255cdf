/*-------------------------------------------------------------------------
 *
 * freshness.h
 *	  Decides which values may be cached: none that is stale or will be.
 *
 * A transaction that changes something puts an invalidation with its id in the queue before it
 * commits.  So a backend that has read the queue knows of each change that its snapshot can
 * see, and has dropped the old value.  It remains to prevent the old value from coming back:
 * computed with a snapshot that does not see the change, and kept until a later snapshot does
 * (the fill race).
 *
 * Hence the rule.  A value computed with snapshot S may be kept if no transaction that has
 * invalidated it, as far as the queue has been read, is in progress for S.  If a transaction
 * invalidates it later, the value is dropped then.
 *
 * There are too many invalidating transactions to remember each of them.  Each of a number of
 * buckets, chosen by hash, remembers the lowest and the highest of those that some snapshot
 * may see in progress.  If any transaction between them is in progress for S, the value is not
 * kept.  This errs only on the safe side.
 *
 * A backend that joins the queue, or was overrun, has missed some transactions.  S sees their
 * changes unless they are in progress for S.  A transaction that was still in progress after
 * the join, and had not put its invalidations in the queue when we joined, was not missed.  So
 * the value may be kept if all transactions that are in progress for S and older than the join
 * are among those that were not missed.
 *
 * Transaction ids are compared modulo 2^32, as the server does.  That works for ids that are
 * not too far apart: a backend that has read nothing for too long joins again
 * (herald_freshness_advance).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_FRESHNESS_H
#define HERALD_FRESHNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "xid.h"

/* A snapshot: the fields of the server's SnapshotData that are needed here. */
typedef struct HeraldVisibility
{
	uint32_t	xmin;			/* all ids before it are finished */
	uint32_t	xmax;			/* all ids from here on are in progress */
	const uint32_t *running;	/* top-level ids between that are in progress,
								 * unordered */
	uint32_t	count;
} HeraldVisibility;

/* Invalidations with equal low bits of their hashes share a bucket. */
#define HERALD_FRESHNESS_BUCKETS	4096

typedef struct HeraldXidRange
{
	uint32_t	lowest;
	uint32_t	highest;		/* 0: empty */
} HeraldXidRange;

typedef struct HeraldFreshness
{
	/* Snapshots that see ids below the floor in progress are refused. */
	uint32_t	floor;			/* 0: not yet */
	uint32_t	swept;			/* the floor when old ranges were last
								 * removed; 0: not yet */
	bool		is_worn_out;	/* nothing may be kept, until the next join */

	/*
	 * Snapshots older than the one with these values are refused too: see
	 * herald_freshness_note_seen().
	 */
	uint32_t	floor_xmax;		/* 0: not yet, or no longer */
	uint32_t	floor_count;

	/* See herald_freshness_join(). */
	uint32_t	missed_before;	/* 0: nothing was missed */
	uint32_t   *not_missed;		/* ids before missed_before; sorted */
	uint32_t	not_missed_count;
	uint32_t   *also_missed;	/* ids from missed_before on; sorted */
	uint32_t	also_missed_count;

	HeraldXidRange buckets[HERALD_FRESHNESS_BUCKETS];
} HeraldFreshness;

/* Nothing has been noted, and nothing was missed. */
extern void herald_freshness_init(HeraldFreshness *freshness);

/*
 * All invalidations before this call were missed.  committing: the transactions that had put
 * invalidations in the queue when we joined, and were not over when the caller collected them
 * after joining; also the prepared transactions, collected after the others.  now: a snapshot
 * taken after both.
 *
 * not_missed: room for now->count + committing_count ids, valid until the next call or as long
 * as the structure is used.  (At most one id is written for each transaction in progress.)
 */
extern void herald_freshness_join(HeraldFreshness *freshness, const HeraldVisibility *now,
								  const uint32_t *committing, uint32_t committing_count,
								  uint32_t *not_missed);

/*
 * A transaction invalidates the keys with this hash.  xmin: no snapshot that this backend
 * uses, now or later, sees an older transaction in progress; 0: not known.
 */
extern void herald_freshness_note(HeraldFreshness *freshness, uint32_t hash, uint32_t xid,
								  uint32_t xmin);

/*
 * The same, with a snapshot instead of its xmin: older snapshots are refused from now on.
 * Transactions that this snapshot sees need not be remembered, whatever else is in progress.
 * Therefore far more values can be kept.
 */
extern void herald_freshness_note_seen(HeraldFreshness *freshness, uint32_t hash, uint32_t xid,
									   const HeraldVisibility *oldest);

/*
 * Advance xmin as herald_freshness_note() does, without a message.  To be called before each
 * use of a cached value.  This keeps the structure current while transaction ids advance and
 * hardly anything is invalidated.
 *
 * False: the last call was more than 2^30 transactions ago, so ids can no longer be compared.
 * Nothing may be kept until the next join.
 */
extern bool herald_freshness_advance(HeraldFreshness *freshness, uint32_t xmin);

/* Does the snapshot see all missed transactions?  If not, nothing may be kept. */
extern bool herald_freshness_sees_missed(const HeraldFreshness *freshness,
										 const HeraldVisibility *snapshot);

/* Does the snapshot see all transactions that were noted with this hash? */
extern bool herald_freshness_sees(const HeraldFreshness *freshness, uint32_t hash,
								  const HeraldVisibility *snapshot);

#endif							/* HERALD_FRESHNESS_H */
