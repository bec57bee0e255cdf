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

#include "queue_layout.h"

#define HERALD_CACHE_LINE		64

/* The ring is that many segments; a batch never crosses a segment's border. */
#define HERALD_SEGMENTS			8

/*
 * Of so many segments, the latest, it is known which databases have something in them:
 * 8 GB with the default ring, as much as herald.max_queue_size has by default; 32 kB.
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

	/* Senders: where the next batch goes.  Only ever grows. */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t head;

	/*
	 * Under the border lock.  tail <= head <= limit == tail + ring_size.  Bytes
	 * below the tail may be overwritten at any moment; bytes from head to limit
	 * are zero, up to what senders have written.
	 */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t limit;
	_Atomic uint64_t tail;
	_Atomic uint32_t border_lock;

	/*
	 * What is below is gone, though somebody needed it.  Only ever grows.  A
	 * listener below it has been overrun, and holds nothing back.
	 */
	_Atomic uint64_t lost;

	/*
	 * Dispatcher, one at a time (dispatching).  settled <= dispatched <= head.
	 * Listeners read below `dispatched`; below `settled` every listener that
	 * is concerned has been marked as well, and in the batch at `settled` as
	 * far as mark_offset: bytes from its header on, 0 if it has not begun.
	 */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t dispatched;
	_Atomic uint64_t settled;
	_Atomic uint32_t dispatching;
	_Atomic uint32_t mark_offset;

	/* Dispatcher: see segment_databases.c. */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t databases[HERALD_SEGMENTS_NOTED];

	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t ring[];
} HeraldQueue;

/* What a sender says of its batch. */
typedef struct HeraldBatch
{
	uint32_t	count;			/* entries */
	uint32_t	database;
	int32_t		sender_pid;
	uint64_t	unsettled_max;	/* so much may be unsettled before it; 0: any number of bytes */
	uint64_t	room_left;		/* so much room has to be left after it, in bytes */
} HeraldBatch;

/* A ring size in bytes that herald_queue_init() takes: rounded down, within limits. */
extern uint64_t herald_queue_ring_size(uint64_t wanted);

/* Bytes of memory that a queue of this ring size needs. */
extern size_t herald_queue_bytes(uint64_t ring_size);

extern void herald_queue_init(HeraldQueue *queue, uint64_t ring_size);

/* The most bytes of entries that one batch can hold. */
extern uint64_t herald_queue_batch_max(const HeraldQueue *queue);

/*
 * Reserve room for a batch with entries_length bytes of entries (a multiple of
 * 8, at most herald_queue_batch_max()).  On success the batch is RESERVED and
 * the caller owns it until it calls herald_queue_commit() or herald_queue_abort().
 * False: the ring is full, or would be but for room_left, or more than unsettled_max is
 * unsettled; recycle, dispatch and try again, or give up.
 */
extern bool herald_queue_reserve(HeraldQueue *queue, const HeraldBatch *batch,
								 uint64_t entries_length, HeraldPosition *position);

/* Copy the entries in.  By the owner, once, before it finishes the batch. */
extern void herald_queue_fill(HeraldQueue *queue, HeraldPosition position,
							  const void *entries, uint64_t entries_length);

/* Finish a batch, exactly once, by its owner [Q2].  Then dispatch. */
extern void herald_queue_commit(HeraldQueue *queue, HeraldPosition position, int64_t commit_time);
extern void herald_queue_abort(HeraldQueue *queue, HeraldPosition position);

/*
 * The border lock: while a process has it, nothing that is kept is let go of by
 * another, and no session begins to need something older.  No process ever waits
 * for it here: false means that another has it.  For a moment only; its holder
 * neither throws nor waits.
 */
extern bool herald_queue_lock_border(HeraldQueue *queue);
extern void herald_queue_unlock_border(HeraldQueue *queue);

/*
 * Let senders have the segments that lie wholly below `needed`: a position
 * from herald_wakeup_needed(), or one up to which they have been saved or given
 * up; never above `settled`.  Under the border lock.  True if that made room.
 */
extern bool herald_queue_recycle(HeraldQueue *queue, HeraldPosition needed);

/* Is what is left before the limit less than a segment? */
extern bool herald_queue_is_short(HeraldQueue *queue);

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

#endif							/* HERALD_QUEUE_H */
