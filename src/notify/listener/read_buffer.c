/*-------------------------------------------------------------------------
 *
 * read_buffer.c
 *	  The buffer that a listener copies parts of the queue to.
 *
 * The buffer is allocated before the first notification: delivering allocates nothing, except
 * for longer payloads.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "notify/listener/read_buffer.h"

/* A chunk of the queue, in bytes.  Grows for an entry that is larger. */
#define BUFFER_SIZE		((size_t) 16 * 1024)

static HeraldReadBuffer buffer;


void
herald_read_buffer_allocate(void)
{
	if (buffer.bytes == NULL)
	{
		buffer.bytes = MemoryContextAlloc(TopMemoryContext, BUFFER_SIZE);
		buffer.size = BUFFER_SIZE;
	}
}

HeraldReadBuffer
herald_read_buffer(void)
{
	return buffer;
}

HeraldReadBuffer
herald_read_buffer_grow(size_t size)
{
	buffer.bytes = repalloc_huge(buffer.bytes, size);
	buffer.size = size;
	return buffer;
}

void
herald_read_buffer_shrink(size_t size_max)
{
	if (buffer.size > size_max)
		(void) herald_read_buffer_grow(BUFFER_SIZE);
}
