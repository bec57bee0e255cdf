/*-------------------------------------------------------------------------
 *
 * kept.c
 *	  The part of the queue that can still be read: its size, and the time of its first commit.
 *
 * Senders use a segment of the ring again only when they need room, so the ring always has the last part of the queue.
 * Temporary files have an earlier part, for listeners that need it, or because of herald.retain_size (spill.c).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "base/shared.h"
#include "core/queue_reader.h"
#include "notify/position/kept.h"
#include "notify/storage/spill.h"

/* A search for a committed batch reads at most CHUNKS_MAX chunks, each of at most CHUNK_BYTES bytes. */
#define CHUNK_BYTES			8192
#define CHUNKS_MAX			16

typedef enum Sought
{
	SOUGHT_FOUND,
	SOUGHT_FURTHER_ON,
	SOUGHT_NOWHERE				/* the bytes at the place are not a finished
								 * batch, so the queue is damaged */
} Sought;

static Sought seek_commit(const char *chunk, uint64 length, HeraldPosition *position,
						  TimestampTz *since);
static bool read_queue(HeraldPosition position, uint64 length, void *to);


uint64
herald_kept_bytes(void)
{
	HeraldPosition from = herald_spill_kept_from();
	HeraldPosition to = atomic_load(&herald_queue->dispatched);

	return from < to ? to - from + herald_large_table_bytes_between(herald_large_table, from, to) : 0;
}

HeraldGone
herald_kept_why_gone(HeraldPosition position)
{
	if (herald_shared_is_damaged())
		return herald_gone(HERALD_GONE_DAMAGED);
	return herald_gone(position < atomic_load(&herald_queue->lost) ? HERALD_GONE_FOR_ROOM : HERALD_GONE_BY_SIZE);
}

bool
herald_kept_begin(TimestampTz *since)
{
	return herald_kept_since(herald_spill_kept_from(), since);
}

/*
 * Views call this function for each listener, so the function gives up after CHUNKS_MAX reads, even if it has found
 * only aborted batches until then.
 */
bool
herald_kept_since(HeraldPosition position, TimestampTz *since)
{
	HeraldPosition dispatched = atomic_load(&herald_queue->dispatched);
	Sought		sought = SOUGHT_FURTHER_ON;

	for (int i = 0; i < CHUNKS_MAX && position < dispatched && sought == SOUGHT_FURTHER_ON; i++)
	{
		char		chunk[CHUNK_BYTES] pg_attribute_aligned(HERALD_ALIGN);
		HeraldPosition end = Min(dispatched, herald_queue_next_segment(herald_queue, position));
		uint64		length = Min(end - position, sizeof(chunk));

		if (!read_queue(position, length, chunk))
			return false;
		sought = seek_commit(chunk, length, &position, since);
	}
	return sought == SOUGHT_FOUND;
}

/*
 * Get the time of the first committed batch in a chunk that was read from *position on.  If the chunk has no committed
 * batch, set *position to the place where the next chunk begins.
 */
static Sought
seek_commit(const char *chunk, uint64 length, HeraldPosition *position, TimestampTz *since)
{
	uint64		at = 0;

	while (at < length)
	{
		HeraldBatchHeader header;

		memcpy(&header.word, chunk + at, sizeof(header.word));
		if (header.word == herald_word_make(*position, HERALD_BATCH_FILLER))
		{
			*position = herald_queue_next_segment(herald_queue, *position);
			break;
		}
		if (at + sizeof(header) > length)
			return at > 0 ? SOUGHT_FURTHER_ON : SOUGHT_NOWHERE;
		memcpy(&header, chunk + at, sizeof(header));
		if (header.word == herald_word_make(*position, HERALD_BATCH_COMMITTED))
		{
			*since = header.commit_time;
			return SOUGHT_FOUND;
		}
		if (header.word != herald_word_make(*position, HERALD_BATCH_ABORTED) ||
			header.length < sizeof(header) || header.length % HERALD_ALIGN != 0)
			return SOUGHT_NOWHERE;
		*position += header.length;
		at += header.length;
	}
	return SOUGHT_FURTHER_ON;
}

/* Copy a part of the queue, from memory or from a file.  Returns false if the part no longer exists. */
static bool
read_queue(HeraldPosition position, uint64 length, void *to)
{
	return herald_queue_copy(herald_queue, position, length, to) ||
		herald_spill_read(position, length, to);
}
