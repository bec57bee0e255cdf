/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Saves segments that leave the ring, and keeps the saved data within limits by giving up the oldest data.
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
 * The saved range of the queue, from `from` up to `to`.  Written by the spiller, which is the one process that holds
 * spill_lock.  The spiller also moves the tail of the ring.
 */
typedef struct HeraldRetention
{
	_Atomic uint64_t from;
	_Atomic uint64_t to;

	/*
	 * For each set of channels, the first position from which no large
	 * transaction's file is missing.
	 */
	_Atomic uint64_t complete_from[HERALD_CHANNEL_SETS];
} HeraldRetention;

/* Maximum bytes kept outside of the ring. */
typedef struct HeraldRetentionLimits
{
	uint64_t	bytes_max;		/* of all data */
	uint64_t	retain_max;		/* of data that no listener needs */
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

/* The functions that store segments.  Called by the spiller; none of these functions may throw. */
typedef struct HeraldRetentionCalls
{
	/* Save this segment of the ring.  Returns false if saving failed. */
	bool		(*save) (HeraldPosition segment);

	/*
	 * remove() deletes the file of a segment, if there is such a file,
	 * whether it is complete or not.  Deleting takes time, and may be done
	 * after the spiller has released its lock, since the segment is not saved
	 * again. removing(): are there removed files that are not deleted yet?
	 */
	void		(*remove) (HeraldPosition segment);
	bool		(*removing) (void);

	/*
	 * overrun() is called for each listener that misses messages because
	 * segments are given up.  dropped() is called when data that a listener
	 * needs has been given up.
	 */
	void		(*dropped) (void);
	void		(*overrun) (uint32_t slot, HeraldOverrunReason reason);

	/* Delete the file of a large transaction, like remove(). */
	void		(*remove_large) (uint64_t number, uint64_t bytes);
} HeraldRetentionCalls;

/* The data and functions that the spiller works with.  Constant. */
typedef struct HeraldSpiller
{
	HeraldRetention *retention;
	HeraldQueue *queue;
	HeraldWakeup *wakeup;
	HeraldLargeTable *large;
	const HeraldRetentionCalls *calls;
} HeraldSpiller;

/* Is the ring short of room, and is its oldest segment settled?  Called by any process; the result is a hint. */
extern bool herald_retention_can_move(HeraldQueue *queue);

/*
 * Give the memory of the ring's oldest segment to senders.  If a listener needs the segment, or if it may be
 * retained, the segment is saved first, within the limits.  Only one segment is moved at a time, so that clients
 * that reconnect can still read the others.  Called by the spiller.
 */
extern HeraldRetentionResult herald_retention_move(const HeraldSpiller *spiller,
												   const HeraldRetentionLimits *limits);

/*
 * Delete data that no listener needs and that is beyond the limits.  Then make room for `bytes` bytes of large
 * transactions' files, if necessary by giving up the oldest data.  Returns false if not enough data can be given
 * up.  Called by the spiller.
 */
extern bool herald_retention_leave_room(const HeraldSpiller *spiller, uint64_t bytes,
										const HeraldRetentionLimits *limits);

/*
 * Give up the oldest data, because saving has failed.  Returns false if there is no data that can be given up.
 * Called by the spiller.
 */
extern bool herald_retention_give_up_oldest(const HeraldSpiller *spiller);

/*
 * Give up the oldest file of a large transaction, because there is no place for another file.  Returns false if
 * there is no file that can be given up.  Called by the spiller.
 */
extern bool herald_retention_give_up_oldest_large(const HeraldSpiller *spiller);

/*
 * Returns the position from which all messages on channels of these sets still exist, in the ring or in files.  If
 * `sets` is 0, returns the position from which all segments still exist, even if files of large transactions are
 * missing.  Called by any process; the result is a hint, unless the spiller calls.
 */
extern HeraldPosition herald_retention_kept_from(HeraldRetention *retention, HeraldQueue *queue,
												 uint64_t sets);

/*
 * A listener in a transaction wants to read channels of these sets from an older position, where a batch begins.
 * Returns true if this is possible: all messages from this position on are kept for the listener, and *had_read is
 * the position up to which the listener had read all of its channels.  Otherwise returns false, and nothing has
 * changed: some messages no longer exist, or the listener's state does not allow this.  Called by the spiller, which
 * need not be the listener.
 */
extern bool herald_retention_hold(const HeraldSpiller *spiller, uint32_t slot, uint64_t sets,
								  HeraldPosition position, HeraldPosition *had_read);

/* Is this segment saved completely?  Called by any process; a saved segment can be deleted at any moment. */
extern bool herald_retention_has(HeraldRetention *retention, HeraldPosition segment);

/* Returns the number of bytes in saved segments. */
extern uint64_t herald_retention_bytes(HeraldRetention *retention);

#endif							/* HERALD_RETENTION_H */
