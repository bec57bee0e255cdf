/*-------------------------------------------------------------------------
 *
 * memory.h
 *	  Allocates the shared structures.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_MEMORY_H
#define HERALD_MEMORY_H

/* Request shared memory, and initialize it.  Called once, in _PG_init(). */
extern void herald_memory_install_hooks(void);

#endif							/* HERALD_MEMORY_H */
