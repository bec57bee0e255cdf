/*-------------------------------------------------------------------------
 *
 * memory.h
 *	  The table of shared structures.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_MEMORY_H
#define HERALD_MEMORY_H

/* Ask for shared memory, and set it up.  Once, in _PG_init(). */
extern void herald_memory_install_hooks(void);

#endif							/* HERALD_MEMORY_H */
