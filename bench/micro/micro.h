/*-------------------------------------------------------------------------
 *
 * micro.h
 *	  Shared declarations of the measured operations of core/.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef MICRO_H
#define MICRO_H

#include "sequencer.h"
#include "queue_reader.h"
#include "wakeup.h"

#include <time.h>

#define RING_SIZE		(UINT64_C(16) << 20)	/* as herald.queue_memory by default */
#define DATABASE		5u
#define OTHER_DATABASE	6u
#define TURNS			2		/* as on a machine with two CPUs */

/* The unit of an operation's size. */
typedef enum SizeOf
{
	SIZE_NOTHING,				/* no size: always 1 */
	SIZE_BYTES,					/* of a channel's name */
	SIZE_ENTRIES,				/* notifications in a batch */
	SIZE_LISTENERS,				/* slots with a listener */
	SIZE_THREADS				/* that run the same operation at once */
} SizeOf;

/* The data that an operation works on; members that it does not need stay unset. */
typedef struct Bench
{
	uint32_t	size;
	HeraldQueue  *queue;
	char	   *entries;		/* of one batch */
	uint64_t	entries_length;
	HeraldPosition *positions;	/* of the prepared batches */
	HeraldWakeup **wakeups;		/* several equal ones, to make a loop long enough */
	uint32_t	wakeups_count;
	uint32_t   *slots;			/* drawn at random */
	uint32_t   *all_slots;		/* each once, in order */
	uint64_t	spent_ns;		/* CPU time of all threads, if run() starts any */
} Bench;

/*
 * One operation to measure.  create() makes the data; prepare() brings it into the
 * state in which run() can do n operations.  Only run() is measured.  A function
 * that has nothing to do is NULL.
 */
typedef struct Operation
{
	const char *name;
	SizeOf		size_of;
	void		(*create) (Bench *bench);
	void		(*prepare) (Bench *bench, uint64_t n);
	void		(*run) (Bench *bench, uint64_t n);

	/* The number of operations after one prepare(), if about `wanted` are wanted. */
	uint64_t	(*loop) (const Bench *bench, uint64_t wanted);
} Operation;

extern const Operation queue_operations[];
extern const Operation wakeup_operations[];
extern const Operation thread_operations[];

/* micro.c: zeroed memory, which lasts until the operation has been measured */
extern void *allocate(size_t bytes);

extern uint64_t clock_ns(clockid_t clock);

/* queue_operations.c */
extern void log_create(Bench *bench);
extern void log_reset(Bench *bench, uint64_t n);
extern uint64_t log_loop(const Bench *bench, uint64_t wanted);
extern HeraldPosition log_reserve(Bench *bench, uint32_t database);
extern HeraldPosition log_send(Bench *bench, uint32_t database);
extern void log_dispatch(Bench *bench);

/* wakeup_operations.c */
extern HeraldWakeup *wakeup_create(uint32_t slots);

/* Keeps the compiler from removing the computation of this value. */
static inline void
consume(uint64_t value)
{
	__asm__ volatile ("" : : "r" (value) : "memory");
}

#endif							/* MICRO_H */
