/*-------------------------------------------------------------------------
 *
 * retention.h
 *	  Which stretch of the queue has been saved elsewhere, and what is lost.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RETENTION_H
#define HERALD_RETENTION_H

#include "queue.h"
#include "wakeup.h"

/* Into so many sets the channels of all databases are divided, each a bit. */
#define HERALD_CHANNEL_SETS		64

/* Written by one process at a time, which holds a lock: the spiller. */
typedef struct HeraldRetention
{
	_Atomic uint64_t from;
	_Atomic uint64_t to;

	/* From here on nothing is missing, on channels of this set, of what is kept elsewhere besides segments. */
	_Atomic uint64_t complete_from[HERALD_CHANNEL_SETS];
} HeraldRetention;

/* How much may be kept outside of the ring, in bytes: in all, and of what nobody needs. */
typedef struct HeraldRetentionLimits
{
	uint64_t	bytes_max;
	uint64_t	retain_max;
} HeraldRetentionLimits;

/* Why listeners miss something. */
typedef enum HeraldOverrunReason
{
	HERALD_OVERRUN_LIMIT,		/* there may not be more */
	HERALD_OVERRUN_ERROR		/* it could not be saved */
} HeraldOverrunReason;

/* What has come of an attempt to make room. */
typedef enum HeraldRetentionResult
{
	HERALD_RETENTION_NO_ROOM,
	HERALD_RETENTION_ROOM,
	HERALD_RETENTION_AGAIN			/* try again when some of what was removed has been deleted */
} HeraldRetentionResult;

/* Where segments are saved.  Called by the spiller; none may throw. */
typedef struct HeraldRetentionCalls
{
	/*
	 * Save this segment of the ring.  False: it could not be.  It may be
	 * recycled meanwhile, so that what is saved is of no use; therefore loads
	 * from the ring must come before the return (a read barrier, or acquire).
	 */
	bool		(*save) (HeraldPosition segment);

	/*
	 * Delete one that was saved, or could not be; there may be none.  That takes
	 * time, and may be done when the spiller has let go of its lock: this segment
	 * is not saved again.  And is something removed that is not deleted yet?
	 */
	void		(*remove) (HeraldPosition segment);
	bool		(*removing) (void);

	/* Something was given up; and each listener that needed it. */
	void		(*dropped) (void);
	void		(*overrun) (uint32_t slot, HeraldOverrunReason reason);

	/*
	 * What is kept elsewhere besides segments and counts for the same limits:
	 * how much, how much of that belongs to a stretch of the queue, the position
	 * that the oldest belongs to (UINT64_MAX: there is none), and a way to delete
	 * what belongs below a position, as in remove(), which notes the highest of
	 * these positions for each set of channels, where there was 0.  NULL: there is
	 * nothing of the kind.
	 */
	uint64_t	(*others_bytes) (void);
	uint64_t	(*others_bytes_between) (HeraldPosition from, HeraldPosition to);
	HeraldPosition (*others_oldest) (void);
	void		(*others_remove) (HeraldPosition below, HeraldPosition removed[HERALD_CHANNEL_SETS]);
} HeraldRetentionCalls;

/* Is the ring short of room, and is its oldest segment finished and settled?  By anybody; a hint. */
extern bool herald_retention_can_move(HeraldQueue *queue);

/* Is there room, or can it be made?  By anybody; a hint. */
extern bool herald_retention_may_have_room(HeraldQueue *queue);

/*
 * Let senders have the oldest segment of the ring, if no listener needs it.  Not more at a
 * time: what is there can be read again after a reconnect.  By anybody.  True: there is room.
 */
extern bool herald_retention_recycle(HeraldQueue *queue, HeraldWakeup *wakeup);

/*
 * Let senders have the oldest segment of the ring.  If a listener needs it, or
 * there may be more of what nobody needs, it is saved first; within the limits.
 * By the spiller.
 */
extern HeraldRetentionResult herald_retention_move(HeraldRetention *retention, HeraldQueue *queue,
												   HeraldWakeup *wakeup,
												   const HeraldRetentionLimits *limits,
												   const HeraldRetentionCalls *calls);

/*
 * Delete what nobody needs beyond the limit, and leave room for that many bytes
 * besides segments, at the expense of what is oldest.  By the spiller.  False:
 * there is not enough that could be given up.
 */
extern bool herald_retention_leave_room(HeraldRetention *retention, HeraldQueue *queue,
										HeraldWakeup *wakeup, uint64_t bytes,
										const HeraldRetentionLimits *limits,
										const HeraldRetentionCalls *calls);

/* Delete what nobody needs below a position.  By the spiller. */
extern void herald_retention_expire(HeraldRetention *retention, HeraldQueue *queue,
									HeraldWakeup *wakeup, HeraldPosition position,
									const HeraldRetentionCalls *calls);

/* Give up what is oldest, because saving failed.  By the spiller.  False: there is nothing. */
extern bool herald_retention_give_up_oldest(HeraldRetention *retention, HeraldQueue *queue,
											HeraldWakeup *wakeup,
											const HeraldRetentionCalls *calls);

/* The same of what is kept besides segments alone: there is no place for more of it. */
extern bool herald_retention_give_up_oldest_other(HeraldRetention *retention, HeraldQueue *queue,
												  HeraldWakeup *wakeup,
												  const HeraldRetentionCalls *calls);

/*
 * From here on everything on channels of these sets is still there, in the ring or elsewhere;
 * without sets, all but what is kept elsewhere besides segments.  By anybody: under the border
 * lock it stays so, but for what is given up; without it is a hint.
 */
extern HeraldPosition herald_retention_kept_from(HeraldRetention *retention, HeraldQueue *queue,
												 uint64_t sets);

typedef enum HeraldHoldResult
{
	HERALD_HOLD_DONE,			/* everything from the position on will come */
	HERALD_HOLD_GONE,			/* some of it is not there any more: nothing has changed */
	HERALD_HOLD_AGAIN			/* another process has the border lock: call again */
} HeraldHoldResult;

/*
 * A listener in a transaction wants to read channels of these sets from an older position, where a batch
 * begins.  On success it is told up to where it had read everything of its channels.
 */
extern HeraldHoldResult herald_retention_hold(HeraldRetention *retention, HeraldQueue *queue,
											  HeraldWakeup *wakeup, uint32_t slot,
											  uint64_t sets, HeraldPosition position,
											  HeraldPosition *had_read);

/* Has this segment been saved as a whole?  By anybody; it can be deleted any moment. */
extern bool herald_retention_has(HeraldRetention *retention, HeraldPosition segment);

/* Bytes that are saved. */
extern uint64_t herald_retention_bytes(HeraldRetention *retention);

#endif							/* HERALD_RETENTION_H */
