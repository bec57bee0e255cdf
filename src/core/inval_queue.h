/*-------------------------------------------------------------------------
 *
 * inval_queue.h
 *	  The queue of invalidations, and each reader's position in it.
 *
 * A ring of small messages of fixed size.  A backend that is about to commit a change inserts
 * messages under one lock.  Each backend that has a cache reads them without a lock, and
 * stores its position in a word of its own.
 *
 * Inserters check the readers, but only when the ring is half full, 9/16, 10/16 and so on.
 * The reader that is furthest behind, if it is far behind, gets a signal and the turn to catch
 * up; when it has caught up, it hands the turn on.  So only one reader at a time is woken.  If it
 * has read nothing between two checks, the turn goes to another one.  A reader whose next message
 * is overwritten is reset: only this reader has to drop everything that it caches.
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

#include "cache_line.h"

/*
 * The keys that change when `xid` commits, which it is about to do.  Readers drop the key's
 * values at once, and cache a value again only if its snapshot sees xid as finished: see
 * freshness.h.
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
 * Inserters check the readers when one of them still has to read size / CLEANUP_MIN messages,
 * and again for each size / CLEANUP_QUANTUM more.  A reader that is size / FAR_BEHIND behind
 * is signalled.
 */
#define HERALD_INVAL_CLEANUP_MIN		2
#define HERALD_INVAL_CLEANUP_QUANTUM	16
#define HERALD_INVAL_FAR_BEHIND			2

/* Maximum number of messages that one call inserts while the lock is held. */
#define HERALD_INVAL_WRITE_QUANTUM		64

/* Maximum number of messages that one call reads. */
#define HERALD_INVAL_READ_QUANTUM		32

/* Between two checks there must be room for the messages of one call. */
#define HERALD_INVAL_SIZE_MIN \
	(HERALD_INVAL_CLEANUP_QUANTUM * HERALD_INVAL_WRITE_QUANTUM)

/*
 * Number of hash values of databases for which the last message is recorded; a power of two.
 */
#define HERALD_INVAL_DATABASES	256

/* No reader, where a slot is expected. */
#define HERALD_INVAL_NOBODY		(-1)

typedef enum HeraldInvalState
{
	HERALD_INVAL_FREE,			/* does not read */
	HERALD_INVAL_READING,
	HERALD_INVAL_RESET			/* has missed messages: must join again */
} HeraldInvalState;

typedef struct HeraldInvalReader
{
	/* The position to read next, times 4, and the state. */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) word;

	/* Its turn to catch up was taken back, and it has read nothing since. */
	_Atomic uint32_t stuck;

	/*
	 * As a writer: the transaction of this slot whose invalidations are in
	 * the queue, while it may be neither finished nor prepared; 0: none.
	 */
	_Atomic uint32_t committing;
} HeraldInvalReader;

typedef struct HeraldInvalQueue
{
	uint32_t	size;			/* constant; messages */
	uint32_t	slots;			/* constant */

	/* Written with the lock held; readers load it for each use of a cache. */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) head;	/* position of the next
														 * message */

	/* With the lock held. */
	uint64_t	_Alignas(HERALD_CACHE_LINE) look_at;	/* check the readers
														 * when head gets there */
	uint64_t	checked_turn;	/* after the last check: the turn, and its
								 * holder's word */
	uint64_t	checked_word;

	/*
	 * Bits 0 to 31: the slot + 1 of the reader with the turn to catch up, or
	 * 0; from bit 32 on: the turn's number.
	 */
	_Atomic uint64_t turn;
	_Atomic uint32_t slots_used;	/* no slot from here on was ever used */

	/* For each hash of a database: the position after its last message. */
	uint64_t	last[HERALD_INVAL_DATABASES];

	/* Counters since the server's start. */
	_Atomic uint64_t resets;
	_Atomic uint64_t signals;	/* turns given */
	_Atomic uint64_t rescues;	/* turns taken back */

	/* readers[slots], then the messages: two words each */
	HeraldInvalReader readers[];
} HeraldInvalQueue;

/* Bytes of memory for a queue of `size` messages. */
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
 * Start to read, or start again after a reset, with the next message.  With the lock held.
 * All messages before are missed: `committing` of all slots, loaded after this call, has those
 * of their transactions that are not over yet [I7].
 */
extern void herald_inval_join(HeraldInvalQueue *queue, uint32_t slot);

/*
 * After a reset, continue with the next message.  With the lock held.  False: messages of this
 * database may have been missed, so call herald_inval_join().
 */
extern bool herald_inval_skip(HeraldInvalQueue *queue, uint32_t slot, uint32_t database);

/*
 * Stop reading, from any state.  Hands on the turn if the reader has it.  Returns the slot to
 * signal, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_leave(HeraldInvalQueue *queue, uint32_t slot);

/*
 * Has this reader read all messages, without a reset?  Costs one load of a shared cache line.
 */
static inline bool
herald_inval_is_current(HeraldInvalQueue *queue, uint32_t slot)
{
	uint64_t	word = atomic_load_explicit(&queue->readers[slot].word, memory_order_relaxed);

	/* [I1] pairs with herald_inval_insert() */
	return herald_inval_state(word) == HERALD_INVAL_READING &&
		herald_inval_position(word) == atomic_load_explicit(&queue->head, memory_order_acquire);
}

/*
 * Read the next messages, up to HERALD_INVAL_READ_QUANTUM.  Returns their number, 0 at the
 * end, or -1: messages were missed, so drop everything and join again.
 */
extern int	herald_inval_read(HeraldInvalQueue *queue, uint32_t slot, HeraldInvalidation *messages);

/*
 * The reader has read everything or joined again, signalled or not.  If it had the turn, the
 * turn goes to the next reader that is far behind.  Returns the slot to signal, or
 * HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_caught_up(HeraldInvalQueue *queue, uint32_t slot);

/*
 * Insert up to HERALD_INVAL_WRITE_QUANTUM messages.  With the lock held.  Returns the slot to
 * signal once the lock is released, which may be the caller's own, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_insert(HeraldInvalQueue *queue, const HeraldInvalidation *messages,
								   uint32_t count);

/* The turn, as a word to compare.  Its lower half: the slot + 1 that has it; 0: none has. */
static inline uint64_t
herald_inval_turn(HeraldInvalQueue *queue)
{
	return atomic_load_explicit(&queue->turn, memory_order_seq_cst);
}

/*
 * Take back exactly this turn: its holder is busy, or does not move.  It gets no other turn until
 * it has read something.  With the lock held.  Returns the slot to signal, or HERALD_INVAL_NOBODY.
 */
extern int32_t herald_inval_rescue(HeraldInvalQueue *queue, uint64_t turn);

#endif							/* HERALD_INVAL_QUEUE_H */
