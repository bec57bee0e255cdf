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

/* Written by one process at a time, which holds a lock: the spiller. */
typedef struct HeraldRetention
{
	_Atomic uint64_t from;
	_Atomic uint64_t to;
} HeraldRetention;

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
	 * What is kept elsewhere besides segments and counts for the same limit:
	 * how much, the position in the queue that the oldest belongs to (UINT64_MAX:
	 * there is none), and a way to delete what belongs below a position, as in
	 * remove().  NULL: there is nothing of the kind.
	 */
	uint64_t	(*others_bytes) (void);
	HeraldPosition (*others_oldest) (void);
	void		(*others_remove) (HeraldPosition below);
} HeraldRetentionCalls;

/* Is the ring short of room, and is its oldest segment finished and settled?  By anybody; a hint. */
extern bool herald_retention_can_move(HeraldQueue *queue);

/*
 * Let senders have the oldest segment of the ring.  If a listener needs it, it
 * is saved first; at most `bytes_max` are.  By the spiller.
 */
extern HeraldRetentionResult herald_retention_move(HeraldRetention *retention, HeraldQueue *queue,
												   HeraldWakeup *wakeup, uint64_t bytes_max,
											 const HeraldRetentionCalls *calls);

/*
 * Delete what nobody needs, and leave room for that many bytes besides segments, of
 * `bytes_max`, at the expense of what is oldest.  By the spiller.  False: there is not enough that
 * could be given up.
 */
extern bool herald_retention_leave_room(HeraldRetention *retention, HeraldQueue *queue,
										HeraldWakeup *wakeup, uint64_t bytes,
									  uint64_t bytes_max, const HeraldRetentionCalls *calls);

/* Give up what is oldest, because saving failed.  By the spiller.  False: there is nothing. */
extern bool herald_retention_give_up_oldest(HeraldRetention *retention, HeraldQueue *queue,
											HeraldWakeup *wakeup,
											const HeraldRetentionCalls *calls);

/* Has this segment been saved as a whole?  By anybody; it can be deleted any moment. */
extern bool herald_retention_has(HeraldRetention *retention, HeraldPosition segment);

/* Bytes that are saved. */
extern uint64_t herald_retention_bytes(HeraldRetention *retention);

#endif							/* HERALD_RETENTION_H */
