/*-------------------------------------------------------------------------
 *
 * stress.h
 *	  The world of the stress of the queue of invalidations: threads that act
 *	  as backends.
 *
 * Inserters number their messages under the lock, all in one sequence, so that
 * a reader knows which one comes next: after the last one that it read, or
 * after the last one that was inserted when it joined.
 *
 * When the inserters have had enough, nobody reads any more who is not
 * signalled.  Then the turn has to go from hand to hand until nobody is far
 * behind, and to become free: nothing of that is left to the watchdog, or to
 * the next insert.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_INVALIDATIONS_STRESS_H
#define HERALD_INVALIDATIONS_STRESS_H

#include <pthread.h>

#include "inval_queue.h"
#include "run.h"

#define INSERTERS		3
#define READERS			6
#define SLOTS			(READERS + 3)	/* so that slots change hands */

typedef struct Reader
{
	uint32_t	index;
	uint64_t	random;
	sem_t		signal;			/* stands for SIGUSR1 */
	_Atomic uint32_t parked;	/* does nothing unless signalled, until the round ends */

	/* The owner's; main uses it between the barriers. */
	bool		joined;
	uint32_t	slot;
	uint32_t	next;			/* number of the message to read next */
} Reader;

typedef struct Inserter
{
	uint32_t	index;
	uint64_t	random;
} Inserter;

/* What happened how often: a run in which something never did proves little. */
typedef enum Count
{
	COUNT_INSERTED, COUNT_READ, COUNT_PASSES, COUNT_SIGNALS, COUNT_LATE_SIGNALS,
	COUNT_HANDED_ON, COUNT_RESETS, COUNT_RESETS_MIDWAY, COUNT_RESETS_OF_HOLDER, COUNT_JOINS,
	COUNT_LEFT_MIDWAY, COUNT_LEFT_WITH_TURN, COUNT_RESCUES, COUNT_RESCUES_FOR_NOBODY,
	COUNT_STUCK_AND_BACK,
	COUNTS
} Count;

typedef struct World
{
	HeraldInvalQueue *queue;

	/* Main's, between the barriers. */
	uint32_t	inserts;		/* that each inserter makes in this round */
	uint32_t	pause_one_in;	/* of them, followed by a pause */
	bool		rescues;		/* does the watchdog take back turns? */
	uint32_t	rescue_looks;	/* after so many looks at the same */
	uint32_t	look_pause_us;

	_Atomic int rescuing;		/* the watchdog may send a signal */
	_Atomic int signals_out;	/* sent, and what they lead to is not all done */
	_Atomic uint64_t insert_ns; /* spent in the core */
	_Atomic uint64_t read_ns;
	_Atomic uint64_t turns_given;
	_Atomic uint64_t turns_ended;

	/* The queue's lock, and what is under it. */
	pthread_mutex_t lock;
	uint32_t	inserted;		/* numbers that have been given */
	uint64_t	last_look;		/* where the head was when an inserter looked after readers */

	pthread_mutex_t slots_lock;
	bool		slot_taken[SLOTS];
	_Atomic uint32_t owner[SLOTS];	/* reader + 1, or 0 */
	_Atomic uint32_t moves[SLOTS];	/* of the owner; odd in the midst of one */

	Inserter	inserters[INSERTERS];
	Reader		readers[READERS];
} World;

extern World world;

/* Signal this slot, or nobody. */
extern void send_signal(int32_t slot);

/* inserter.c */
extern void inserter_act(void *arg);

/* What a message looks like that has this number. */
extern HeraldInvalidation message_make(uint32_t inserter, uint32_t number);
extern bool message_is_intact(const HeraldInvalidation *message);

/* reader.c */
extern void reader_act(void *arg);

/* Read everything, without a pause, and hand the turn on.  By main, at rest. */
extern void reader_finish(Reader *reader);

/* watchdog.c */
extern void watchdog_act(void *arg);

/* As much time has gone since `start`. */
static inline void
count_time(_Atomic uint64_t *sum, uint64_t start)
{
	atomic_fetch_add_explicit(sum, now_ns() - start, memory_order_relaxed);
}

/* Whose turn a word says it is: a slot, or HERALD_INVAL_NOBODY. */
static inline int32_t
holder_of(uint64_t turn)
{
	return (int32_t) (uint32_t) turn - 1;
}

/* A reader's word, seen from outside; adds no ordering that the core did not have. */
static inline uint64_t
word_of(uint32_t slot)
{
	return atomic_load_explicit(&world.queue->readers[slot].word, memory_order_relaxed);
}

#endif							/* HERALD_INVALIDATIONS_STRESS_H */
