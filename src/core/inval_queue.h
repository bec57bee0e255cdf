/*-------------------------------------------------------------------------
 *
 * inval_queue.h
 *	  The queue of invalidations, and how far each reader is.
 *
 * A ring of small messages of one size.  A backend that is about to commit a change
 * inserts them, under one lock; each backend that has a cache reads them, with
 * no lock, and says in a word of its own how far it has come.
 *
 * Inserters look after the readers, and only when the ring is half full, 9/16,
 * 10/16 and so on.  The reader that is furthest behind, if it is far behind, gets a
 * signal and the turn to catch up; when it has, it hands the turn on.  So one at
 * a time is woken, however many there are.  A reader that still needs a message that
 * is to be overwritten is reset: it alone has to take everything that it caches
 * for invalid.
 *
 * After Tom Lane, "Rewriting sinval messaging to reduce contention", pgsql-
 * patches, June 2008, which is how the server's own queue works
 * (storage/ipc/sinvaladt.c).  Different here: readers take no lock.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVAL_QUEUE_H
#define HERALD_INVAL_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue.h"				/* HERALD_CACHE_LINE */

/*
 * What changes when `xid` commits, which it is about to do.  Readers forget
 * the key at once, and cache it again only as seen by a snapshot that sees xid
 * as finished: see freshness.h.
 */
typedef struct HeraldInvalidation
{
	uint32_t	database;		/* oid */
	uint32_t	cache;			/* hash of its name */
	uint32_t	key;			/* hash, or HERALD_KEY_ALL */
	uint32_t	xid;			/* top-level transaction */
} HeraldInvalidation;

/* The whole cache.  No key has this hash. */
#define HERALD_KEY_ALL			UINT32_C(0)

/* Messages in the server's ring.  A power of two, at least HERALD_INVAL_SIZE_MIN. */
#define HERALD_INVAL_SIZE		16384

/*
 * When the ring is so full that somebody has yet to read size / CLEANUP_MIN,
 * inserters look at them, and again whenever it is fuller by size / CLEANUP_QUANTUM.
 * A reader that is size / FAR_BEHIND behind is signalled.
 */
#define HERALD_INVAL_CLEANUP_MIN		2
#define HERALD_INVAL_CLEANUP_QUANTUM	16
#define HERALD_INVAL_FAR_BEHIND			2

/* At most so many messages are inserted while the lock is held... */
#define HERALD_INVAL_WRITE_QUANTUM		64

/* ...and read in one go. */
#define HERALD_INVAL_READ_QUANTUM		32

/* Between two looks there is room for what one inserter inserts. */
#define HERALD_INVAL_SIZE_MIN \
	(HERALD_INVAL_CLEANUP_QUANTUM * HERALD_INVAL_WRITE_QUANTUM)

/* Of so many databases it is known whether a reader has missed something of them; a power of two. */
#define HERALD_INVAL_DATABASES	256

/* Nobody, where a slot is expected. */
#define HERALD_INVAL_NOBODY		(-1)

typedef enum HeraldInvalState
{
	HERALD_INVAL_FREE,			/* does not read */
	HERALD_INVAL_READING,
	HERALD_INVAL_RESET			/* has missed something: join again */
} HeraldInvalState;

typedef struct HeraldInvalReader
{
	/* The position to read next, times 4, and the state. */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t word;

	/* It had its turn to catch up, and has not read anything since. */
	_Atomic uint32_t stuck;

	/*
	 * As a writer: the transaction of this slot whose invalidations are in the
	 * queue and which may not have ended yet, nor been prepared; 0: none.
	 */
	_Atomic uint32_t committing;
} HeraldInvalReader;

typedef struct HeraldInvalQueue
{
	uint32_t	size;			/* constant; messages */
	uint32_t	slots;			/* constant */

	/* Written with the lock held; readers look at it all the time. */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t head;	/* position of the next message */

	/* With the lock held. */
	_Alignas(HERALD_CACHE_LINE) uint64_t look_at;	/* look after the readers when head gets there */

	/* The reader with the turn to catch up: slot + 1, or 0; the number of the turn from bit 32 on. */
	_Atomic uint64_t turn;
	_Atomic uint32_t slots_used;	/* no slot from here on was ever used */

	/* By a hash of the database: behind its last message. */
	uint64_t	last[HERALD_INVAL_DATABASES];

	/* What has happened since the start. */
	_Atomic uint64_t resets;
	_Atomic uint64_t signals;

	/* readers[slots], then the messages: two words each */
	HeraldInvalReader readers[];
} HeraldInvalQueue;

/* Bytes that a queue takes.  size: messages. */
extern size_t herald_inval_memory(uint32_t size, uint32_t slots);
extern void herald_inval_init(HeraldInvalQueue *queue, uint32_t size, uint32_t slots);

static inline uint64_t
herald_inval_position(uint64_t word)
{
	return word >> 2;
}

static inline HeraldInvalState
herald_inval_state(uint64_t word)
{
	return (HeraldInvalState) (word & 3);
}

/*
 * Begin to read, or begin again after a reset, at what comes next.  With the
 * lock held.  Everything up to now is missed: `committing` of all slots, asked
 * after this has returned, tells which of it is not over yet [I7].
 */
extern void herald_inval_join(HeraldInvalQueue *queue, uint32_t slot);

/*
 * Go on at what comes next, after a reset.  With the lock held.  False: some of what
 * was missed may have been of this database, and herald_inval_join() is due.
 */
extern bool herald_inval_skip(HeraldInvalQueue *queue, uint32_t slot, uint32_t database);

/*
 * Read no longer, in whatever state.  Gives up the turn, if there is one.
 * Returns the slot that is to be signalled, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_leave(HeraldInvalQueue *queue, uint32_t slot);

/* Is there nothing for this reader, and no reset?  One look at a shared line. */
static inline bool
herald_inval_is_current(HeraldInvalQueue *queue, uint32_t slot)
{
	uint64_t	word = atomic_load_explicit(&queue->readers[slot].word, memory_order_relaxed);

	/* [I1] pairs with herald_inval_insert() */
	return herald_inval_state(word) == HERALD_INVAL_READING &&
		herald_inval_position(word) == atomic_load_explicit(&queue->head, memory_order_acquire);
}

/*
 * Read on, up to HERALD_INVAL_READ_QUANTUM messages.  Returns how many, 0 at the
 * end, or -1: something is missed, take everything for invalid and join again.
 */
extern int	herald_inval_read(HeraldInvalQueue *queue, uint32_t slot, HeraldInvalidation *messages);

/*
 * The reader has read everything or joined again, by a signal or not.  If it had
 * the turn, that goes to the next one that is far behind.  Returns the slot that is
 * to be signalled, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_caught_up(HeraldInvalQueue *queue, uint32_t slot);

/*
 * Insert up to HERALD_INVAL_WRITE_QUANTUM messages.  With the lock held.
 * Returns the slot that is to be signalled, once the lock is released, or
 * HERALD_INVAL_NOBODY.  That may be the caller's own.
 */
extern int32_t herald_inval_insert(HeraldInvalQueue *queue, const HeraldInvalidation *messages,
								   uint32_t count);

/*
 * The turn, as a word to compare; 0 in its lower half: no reader has it.  By
 * the watchdog, which looks once more before it falls asleep [D4].
 */
static inline uint64_t
herald_inval_turn(HeraldInvalQueue *queue)
{
	return atomic_load_explicit(&queue->turn, memory_order_seq_cst);
}

/*
 * The watchdog takes back the very turn that it saw earlier.  Its holder is
 * passed over until it has read something.  Returns the slot that is to be
 * signalled, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_rescue(HeraldInvalQueue *queue, uint64_t turn);

#endif							/* HERALD_INVAL_QUEUE_H */
