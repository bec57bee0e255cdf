/*-------------------------------------------------------------------------
 *
 * read_buffer.h
 *	  The buffer that a listener copies parts of the queue to.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_READ_BUFFER_H
#define HERALD_READ_BUFFER_H

#include "postgres.h"

/* Where it is, and its bytes. */
typedef struct HeraldReadBuffer
{
	char	   *bytes;
	size_t		size;
} HeraldReadBuffer;

/* Have it.  By a backend that becomes a listener.  May throw. */
extern void herald_read_buffer_allocate(void);

/* After that. */
extern HeraldReadBuffer herald_read_buffer(void);

/* Make it that large, with what is in it.  May throw. */
extern HeraldReadBuffer herald_read_buffer_grow(size_t size);

/* Give back what a long payload took, if it is more than this. */
extern void herald_read_buffer_shrink(size_t size_max);

#endif							/* HERALD_READ_BUFFER_H */
