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

/* The buffer's memory, and its size in bytes. */
typedef struct HeraldReadBuffer
{
	char	   *bytes;
	size_t		size;
} HeraldReadBuffer;

/* Allocate the buffer.  By a backend that becomes a listener.  May throw. */
extern void herald_read_buffer_allocate(void);

/* The buffer, after herald_read_buffer_allocate(). */
extern HeraldReadBuffer herald_read_buffer(void);

/* Enlarge the buffer, keeping its contents.  May throw. */
extern HeraldReadBuffer herald_read_buffer_grow(size_t size);

/* If the buffer was enlarged beyond this size, free the excess. */
extern void herald_read_buffer_shrink(size_t size_max);

#endif							/* HERALD_READ_BUFFER_H */
