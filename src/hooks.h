/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Where the server's statements and plans come by.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HOOKS_H
#define HERALD_HOOKS_H

/* Once, in _PG_init(). */
extern void herald_hooks_install(void);

#endif							/* HERALD_HOOKS_H */
