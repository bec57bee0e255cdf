/*-------------------------------------------------------------------------
 *
 * old.c
 *	  The policy that was replaced in 2008, for comparison only.
 *
 * The same ring with the same messages, and one lock for all of it:
 *
 * - Messages are inserted one by one, each with the lock exclusive.
 * - Messages are read one by one, each with the lock shared; so is the read
 *	 that finds nothing.
 * - A reader that has read anything then computes the oldest position that is
 *	 still needed, with the lock exclusive.
 * - When the ring becomes 7/10 full, all other readers are signalled.
 * - When it is full, all readers are reset, and the ring is empty.
 *
 * In that server the postmaster sent the signals; here the inserter does, which
 * is less work.  Each reader's position has a cache line of its own, as in core/.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval.h"

typedef struct OldReader
{
	_Alignas(HERALD_CACHE_LINE) uint64_t position;	/* to read next */
	bool		reset;
} OldReader;

typedef struct OldQueue
{
	uint32_t	size;			/* constant; messages */
	uint32_t	slots;			/* constant */
	_Alignas(HERALD_CACHE_LINE) uint64_t head;	/* position of the next message */
	uint64_t	tail;			/* position of the oldest message that a reader may need */
	OldReader	readers[];		/* followed by the messages */
} OldQueue;

static HeraldInvalidation *
message_at(OldQueue *queue, uint64_t position)
{
	return (HeraldInvalidation *) &queue->readers[queue->slots] + position % queue->size;
}

static size_t
memory(uint32_t size, uint32_t slots)
{
	return sizeof(OldQueue) + slots * sizeof(OldReader) + size * sizeof(HeraldInvalidation);
}

/* The memory is zeroed, so all readers begin at position 0. */
static void
init(HeraldInvalQueue *memory, uint32_t size, uint32_t slots)
{
	OldQueue   *queue = (OldQueue *) memory;

	queue->size = size;
	queue->slots = slots;
}

static void
join(Backend *self)
{
	OldQueue   *queue = (OldQueue *) self->queue;

	lock_exclusive(self);
	queue->readers[self->slot] = (OldReader) {.position = queue->head};
	lock_release(self);
}

/* The caller holds the lock, exclusive. */
static void
clean_up(OldQueue *queue)
{
	uint64_t	oldest = queue->head;

	for (uint32_t slot = 0; slot < queue->slots; slot++)
		if (queue->readers[slot].position < oldest)
			oldest = queue->readers[slot].position;
	queue->tail = oldest;
}

/* The caller holds the lock, exclusive. */
static void
reset_everybody(OldQueue *queue)
{
	for (uint32_t slot = 0; slot < queue->slots; slot++)
		queue->readers[slot] = (OldReader) {.position = queue->head,.reset = true};
	queue->tail = queue->head;
}

/*
 * Returns 1, 0 at the end, or -1 for a reset.  A shared lock is enough: only this reader's
 * cache line is written.
 */
static int
read_one(OldQueue *queue, OldReader *reader, HeraldInvalidation *message)
{
	if (reader->reset)
	{
		reader->reset = false;
		return -1;
	}
	if (reader->position == queue->head)
		return 0;
	*message = *message_at(queue, reader->position++);
	return 1;
}

static void
accept(Backend *self)
{
	OldQueue   *queue = (OldQueue *) self->queue;
	bool		any = false;

	for (;;)
	{
		HeraldInvalidation message;
		int			found;

		lock_shared(self);
		found = read_one(queue, &queue->readers[self->slot], &message);
		lock_release(self);
		if (found == 0)
			break;
		if (found > 0)
		{
			count(&self->counters->reads, 1);
			backend_apply(self, &message);
		}
		else
			backend_reset(self);
		any = true;
	}
	if (any)
	{
		lock_exclusive(self);
		clean_up(queue);
		lock_release(self);
	}
}

/* Returns whether all readers must be signalled.  The caller holds the lock, exclusive. */
static bool
insert_one(OldQueue *queue, const HeraldInvalidation *message)
{
	if (queue->head - queue->tail == queue->size)
		clean_up(queue);
	if (queue->head - queue->tail == queue->size)
		reset_everybody(queue);
	*message_at(queue, queue->head++) = *message;
	return queue->head - queue->tail == (uint64_t) queue->size * 7 / 10;
}

static void
insert(Backend *self, const HeraldInvalidation *messages, uint32_t count)
{
	OldQueue   *queue = (OldQueue *) self->queue;

	for (uint32_t i = 0; i < count; i++)
	{
		bool		full;

		lock_exclusive(self);
		full = insert_one(queue, &messages[i]);
		lock_release(self);
		for (uint32_t slot = 0; full && slot < queue->slots; slot++)
			if (slot != self->slot)
				backend_signal(self, slot);
	}
}

const Policy policy_old = {"old", memory, init, join, accept, accept, insert};
