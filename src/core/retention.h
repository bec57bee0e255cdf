/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Saves segments that leave the ring, and gives up the oldest within the limits.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RETENTION_H
#define HERALD_RETENTION_H

#include "large_table.h"
#include "queue.h"
#include "wakeup.h"

/*
 * The saved range of the queue.  Written by the spiller: the one process that holds
 * spill_lock.  The tail of the ring is moved by the spiller as well.
 */
typedef struct HeraldRetention
{
	_Atomic uint64_t from;
	_Atomic uint64_t to;

	/*
	 * For each set of channels: from this position on, no large transaction's
	 * file is missing.
	 */
	_Atomic uint64_t complete_from[HERALD_CHANNEL_SETS];
} HeraldRetention;

/* Maximum bytes kept outside of the ring: in total, and of data that no listener needs. */
typedef struct HeraldRetentionLimits
{
	uint64_t	bytes_max;
	uint64_t	retain_max;
} HeraldRetentionLimits;

/* Why listeners miss messages. */
typedef enum HeraldOverrunReason
{
	HERALD_OVERRUN_LIMIT,		/* the size limit was reached */
	HERALD_OVERRUN_ERROR		/* saving failed */
} HeraldOverrunReason;

/* The result of an attempt to make room. */
typedef enum HeraldRetentionResult
{
	HERALD_RETENTION_NO_ROOM,
	HERALD_RETENTION_ROOM,
	HERALD_RETENTION_AGAIN		/* try again when a removed file has been
								 * deleted */
} HeraldRetentionResult;

/* Storage for segments.  Called by the spiller; none of these functions may throw. */
typedef struct HeraldRetentionCalls
{
	/* Save this segment of the ring.  False: saving failed. */
	bool		(*save) (HeraldPosition segment);

	/*
	 * remove() deletes the file of a segment, complete or not; there may be
	 * no file.  Deleting takes time, and may be done after the spiller has
	 * released its lock: the segment is not saved again.  removing(): are
	 * there removed files that are not deleted yet?
	 */
	void		(*remove) (HeraldPosition segment);
	bool		(*removing) (void);

	/*
	 * dropped(): something was given up; overrun(): called for each listener
	 * that needed it.
	 */
	void		(*dropped) (void);
	void		(*overrun) (uint32_t slot, HeraldOverrunReason reason);

	/* The same for the file of a large transaction. */
	void		(*remove_large) (uint64_t number, uint64_t bytes);
} HeraldRetentionCalls;

/* What the spiller works with.  Constant. */
typedef struct HeraldSpiller
{
	HeraldRetention *retention;
	HeraldQueue *queue;
	HeraldWakeup *wakeup;
	HeraldLargeTable *large;
	const HeraldRetentionCalls *calls;
} HeraldSpiller;

/* Is the ring short of room, and is its oldest segment settled?  By any process; a hint. */
extern bool herald_retention_can_move(HeraldQueue *queue);

/*
 * Give senders the oldest segment of the ring.  If a listener needs it, or if it may be
 * retained, it is saved first, within the limits.  Only one segment at a time: clients that
 * reconnect can still read the others.  By the spiller.
 */
extern HeraldRetentionResult herald_retention_move(const HeraldSpiller *spiller,
												   const HeraldRetentionLimits *limits);

/*
 * Delete data that no listener needs beyond the limit, and make room for `bytes` bytes of
 * large transactions' files, giving up the oldest data if necessary.  By the spiller.  False: not enough can
 * be given up.
 */
extern bool herald_retention_leave_room(const HeraldSpiller *spiller, uint64_t bytes,
										const HeraldRetentionLimits *limits);

/*
 * Give up the oldest data, because saving failed.  By the spiller.  False: there is none to
 * give up.
 */
extern bool herald_retention_give_up_oldest(const HeraldSpiller *spiller);

/* Give up the oldest file of a large transaction, because there is no place for another one. */
extern bool herald_retention_give_up_oldest_large(const HeraldSpiller *spiller);

/*
 * The position from which all messages on channels of these sets still exist, in the ring or
 * in files; with no sets: all segments, whatever large transactions' files are missing.  By any process; a
 * hint, unless by the spiller.
 */
extern HeraldPosition herald_retention_kept_from(HeraldRetention *retention, HeraldQueue *queue,
												 uint64_t sets);

/*
 * A listener in a transaction wants to read channels of these sets from an older position,
 * where a batch begins.  True: everything from there on will be delivered; *had_read is the
 * position up to which the listener had read all of its channels.  False: some of it no longer
 * exists, and nothing has changed.  By the spiller, which need not be the listener.
 */
extern bool herald_retention_hold(const HeraldSpiller *spiller, uint32_t slot, uint64_t sets,
								  HeraldPosition position, HeraldPosition *had_read);

/* Has this segment been saved completely?  By any process; it can be deleted at any moment. */
extern bool herald_retention_has(HeraldRetention *retention, HeraldPosition segment);

/* Bytes of saved segments. */
extern uint64_t herald_retention_bytes(HeraldRetention *retention);

#endif							/* HERALD_RETENTION_H */
