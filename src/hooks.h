/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  Hooks into the server: statements and plans.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HOOKS_H
#define HERALD_HOOKS_H

/* Called once, in _PG_init(). */
extern void herald_hooks_install(void);

#endif							/* HERALD_HOOKS_H */
