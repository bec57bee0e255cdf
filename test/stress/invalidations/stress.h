/*-------------------------------------------------------------------------
 *
 * stress.h
 *	  The stress of the queue of invalidations: its world, with threads that
 *	  act as backends.
 *
 * Inserters number their messages under the lock, all in one sequence, so that
 * a reader knows which message comes next: the one after the last that it read,
 * or after the last that was inserted when it joined.
 *
 * When the inserters are done, only readers that are signalled read.  Then the
 * turn must go from one reader to the next until none is far behind, and become
 * free, without another insert, which would check it.
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

	/* Used by the owner, and by main between the barriers. */
	bool		joined;
	uint32_t	slot;
	uint32_t	next;			/* number of the message to read next */
} Reader;

typedef struct Inserter
{
	uint32_t	index;
	uint64_t	random;
} Inserter;

/* How often each thing happened: a run in which something never happened proves little. */
typedef enum Count
{
	COUNT_INSERTED, COUNT_READ, COUNT_PASSES, COUNT_SIGNALS, COUNT_LATE_SIGNALS,
	COUNT_HANDED_ON, COUNT_RESETS, COUNT_RESETS_MIDWAY, COUNT_RESETS_OF_HOLDER, COUNT_JOINS,
	COUNT_LEFT_MIDWAY, COUNT_LEFT_WITH_TURN, COUNT_TAKEN_BACK, COUNT_PASSED_ON, COUNT_PASSED_ON_TO_NONE,
	COUNT_STUCK_AND_BACK,
	COUNTS
} Count;

typedef struct World
{
	HeraldInvalQueue *queue;

	/* Set by main, between the barriers. */
	uint32_t	inserts;		/* that each inserter makes in this round */
	uint32_t	pause_one_in;	/* one insert in this number is followed by a pause */
	bool		passes_on;		/* are some signalled readers taken for busy? */

	_Atomic int signals_out;	/* sent, and not completely handled */
	_Atomic uint64_t insert_ns; /* spent in the core */
	_Atomic uint64_t read_ns;
	_Atomic uint64_t turns_given;
	_Atomic uint64_t turns_ended;

	/* The queue's lock, and the fields under it. */
	pthread_mutex_t lock;
	uint32_t	inserted;		/* messages that have been numbered */
	uint64_t	last_look;		/* the head when an inserter last looked after readers */

	pthread_mutex_t slots_lock;
	bool		slot_taken[SLOTS];
	_Atomic uint32_t owner[SLOTS];	/* reader + 1, or 0 */
	_Atomic uint32_t moves[SLOTS];	/* of the owner; odd in the middle of one */

	Inserter	inserters[INSERTERS];
	Reader		readers[READERS];
} World;

extern World world;

/* Signal this slot, or none. */
extern void send_signal(int32_t slot);

/* inserter.c */
extern void inserter_act(void *arg);

/* The message that has this number. */
extern HeraldInvalidation message_make(uint32_t inserter, uint32_t number);
extern bool message_is_intact(const HeraldInvalidation *message);

/* reader.c */
extern void reader_act(void *arg);

/* Read everything, without a pause, and hand the turn on.  Called by main, at rest. */
extern void reader_finish(Reader *reader);

/* Add the time since `start`. */
static inline void
count_time(_Atomic uint64_t *sum, uint64_t start)
{
	atomic_fetch_add_explicit(sum, now_ns() - start, memory_order_relaxed);
}

/* The holder of a turn: a slot, or HERALD_INVAL_NOBODY. */
static inline int32_t
holder_of(uint64_t turn)
{
	return (int32_t) (uint32_t) turn - 1;
}

/* A reader's word, seen from outside; adds no memory ordering to the core's. */
static inline uint64_t
word_of(uint32_t slot)
{
	return atomic_load_explicit(&world.queue->readers[slot].word, memory_order_relaxed);
}

#endif							/* HERALD_INVALIDATIONS_STRESS_H */
