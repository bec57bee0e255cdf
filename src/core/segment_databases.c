/*-------------------------------------------------------------------------
 *
 * segment_databases.c
 *	  Records which databases have batches in a segment.
 *
 * One word for each of the latest segments: its upper half is the segment's number, its lower
 * half has a bit for each database.  So one load gets both, and a reader notices when another
 * segment has taken the word.  The number's lower 32 bits suffice: for a false match a reader
 * would have to be 2^32 segments behind.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "segment_databases.h"

static void add(HeraldQueue *queue, HeraldPosition position, uint32_t bits);
static uint32_t bit_of(uint32_t database);


void
herald_segment_note(HeraldQueue *queue, HeraldPosition position, uint32_t database)
{
	add(queue, position, bit_of(database));
}

void
herald_segment_note_empty(HeraldQueue *queue, HeraldPosition position)
{
	add(queue, position, 0);
}

bool
herald_segment_may_have(HeraldQueue *queue, HeraldPosition position, uint32_t database)
{
	uint64_t	number = herald_queue_segment_number(queue, position);

	/*
	 * [L7] relaxed: each published batch was recorded before, and a later
	 * record only adds bits.
	 */
	uint64_t	word = atomic_load_explicit(&queue->databases[number % HERALD_SEGMENTS_NOTED],
											memory_order_relaxed);

	return word >> 32 != (uint32_t) number || (word & bit_of(database)) != 0;
}

/*
 * Call this even with no bit to add: the word then belongs to this segment, not to an earlier
 * one.
 */
static void
add(HeraldQueue *queue, HeraldPosition position, uint32_t bits)
{
	uint64_t	number = herald_queue_segment_number(queue, position);
	_Atomic uint64_t *databases = &queue->databases[number % HERALD_SEGMENTS_NOTED];
	uint64_t	before = atomic_load_explicit(databases, memory_order_relaxed);
	uint64_t	after = bits;

	after |= before >> 32 == (uint32_t) number ? before : number << 32;

	/*
	 * [L7] relaxed: the position is published afterwards, with a release
	 * [W1].
	 */
	if (after != before)
		atomic_store_explicit(databases, after, memory_order_relaxed);
}

static uint32_t
bit_of(uint32_t database)
{
	return UINT32_C(1) << (herald_spread(database) >> 27);
}
