/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  The shared queue of batches: reserving, filling, finishing, recycling.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUEUE_H
#define HERALD_QUEUE_H

#include "cache_line.h"
#include "queue_layout.h"

/* Number of segments in the ring; a batch never crosses a segment's border. */
#define HERALD_SEGMENTS			8

/*
 * Databases are recorded for this number of the latest segments.  With the default ring these
 * are 8 GB, the default of herald.max_queue_size.  The records take 32 kB.
 */
#ifndef HERALD_SEGMENTS_NOTED
#define HERALD_SEGMENTS_NOTED	4096
#endif

/* Smallest ring: a segment must hold several of the largest notifications. */
#define HERALD_RING_MIN			(HERALD_SEGMENTS * (UINT64_C(64) * 1024))

/* Largest ring: a batch's length is 32 bits wide. */
#define HERALD_RING_MAX			(HERALD_SEGMENTS * (UINT64_C(1) << 31))

static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free across processes");
static_assert((HERALD_SEGMENTS & (HERALD_SEGMENTS - 1)) == 0, "a power of two");

typedef struct HeraldQueue
{
	/* Constant after herald_queue_init(). */
	uint64_t	ring_size;		/* bytes, a power of two */
	uint64_t	segment_size;	/* bytes, a power of two */

	/* Senders: where the next batch goes.  Never decreases. */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) head;

	/*
	 * Written by the spiller (retention.h).  tail <= head <= limit == tail +
	 * ring_size.  Bytes below the tail may be overwritten at any moment;
	 * bytes from head to limit are zero, except for what senders have
	 * written.
	 */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) limit;
	_Atomic uint64_t tail;

	/*
	 * Everything below was given up although a listener may have needed it.
	 * Never decreases. A listener below this position has been overrun, and
	 * does not hold the queue back.
	 */
	_Atomic uint64_t lost;

	/*
	 * Dispatcher, one at a time (dispatching).  settled <= dispatched <=
	 * head.  Listeners read below `dispatched`.  Below `settled` all of the
	 * messages' listeners have been marked as well.  In the batch at
	 * `settled` they have been marked up to mark_offset, in bytes from the
	 * batch's header; 0: not begun.
	 */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) dispatched;
	_Atomic uint64_t settled;
	_Atomic uint32_t dispatching;
	_Atomic uint32_t mark_offset;

	/* Dispatcher: see segment_databases.c. */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) databases[HERALD_SEGMENTS_NOTED];

	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) ring[];
} HeraldQueue;

/* A sender's description of its batch. */
typedef struct HeraldBatch
{
	uint32_t	count;			/* entries */
	uint32_t	database;
	uint32_t	role;			/* the sender's: HeraldSender */
} HeraldBatch;

/* A ring size in bytes that herald_queue_init() accepts: rounded down, within limits. */
extern uint64_t herald_queue_ring_size(uint64_t wanted);

/* Bytes of memory for a queue of this ring size. */
extern size_t herald_queue_bytes(uint64_t ring_size);

extern void herald_queue_init(HeraldQueue *queue, uint64_t ring_size);

/* Maximum bytes of entries in one batch. */
extern uint64_t herald_queue_batch_max(const HeraldQueue *queue);

/*
 * Reserve room for a batch with entries_length bytes of entries (a multiple of 8, at most
 * herald_queue_batch_max()).  On success the batch is RESERVED and the caller owns it until it
 * calls herald_queue_commit() or herald_queue_abort().  False: the batch does not fit below
 * `limit`.  It fits if a whole segment is free (herald_queue_is_short()).
 */
extern bool herald_queue_reserve(HeraldQueue *queue, const HeraldBatch *batch,
								 uint64_t entries_length, HeraldPosition *position);

/* Copy the entries in.  By the owner, once, before it finishes the batch. */
extern void herald_queue_fill(HeraldQueue *queue, HeraldPosition position,
							  const void *entries, uint64_t entries_length);

/*
 * Store the end of the transaction's commit record in the batch's HERALD_ENTRY_COMMIT; if it has
 * none, change nothing.  By the owner, between herald_queue_fill() and herald_queue_commit().
 */
extern void herald_queue_set_commit_end(HeraldQueue *queue, HeraldPosition position, uint64_t commit_end);

/* Finish a batch, exactly once, by its owner.  Then dispatch.  xid: as in HeraldSender. */
extern void herald_queue_commit(HeraldQueue *queue, HeraldPosition position, int64_t commit_time, uint64_t xid);
extern void herald_queue_abort(HeraldQueue *queue, HeraldPosition position);

/*
 * Give senders the segments that lie wholly below `needed`: a position from
 * herald_wakeup_needed(), or one up to which all segments have been saved or given up; never
 * above `settled`.  By the spiller.  True if that made room.
 */
extern bool herald_queue_recycle(HeraldQueue *queue, HeraldPosition needed);

/* Is less than a segment free before the limit? */
extern bool herald_queue_is_short(HeraldQueue *queue);

/*
 * The end of the segment that gives up its memory next.  Not by the tail: while that segment is
 * being recycled, the tail is past it already, but senders do not have it yet.
 */
static inline HeraldPosition
herald_queue_oldest_end(HeraldQueue *queue)
{
	return atomic_load_explicit(&queue->limit, memory_order_acquire) - queue->ring_size + queue->segment_size;
}

/* The word of the ring in which a position lies. */
static inline _Atomic uint64_t *
herald_queue_at(HeraldQueue *queue, HeraldPosition position)
{
	return &queue->ring[(position & (queue->ring_size - 1)) / HERALD_ALIGN];
}

/* The first position of the segment after the one this position lies in. */
static inline HeraldPosition
herald_queue_next_segment(const HeraldQueue *queue, HeraldPosition position)
{
	return (position | (queue->segment_size - 1)) + 1;
}

/* The number of the segment this position lies in. */
static inline uint64_t
herald_queue_segment_number(const HeraldQueue *queue, HeraldPosition position)
{
	return position / queue->segment_size;
}

#endif							/* HERALD_QUEUE_H */
