/*-------------------------------------------------------------------------
 *
 * slow_ends.h
 *	  What the server does at the end of a transaction, and may take long, while other sessions would wait.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SLOW_ENDS_H
#define HERALD_SLOW_ENDS_H

#include "postgres.h"

/* Do now what can be done before other sessions wait for this one.  Before the commit; may throw. */
extern void herald_slow_ends_do(void);

/* Will the server write much of what this transaction has put into new tables? */
extern bool herald_slow_ends_has_syncs(void);

/* Will the server read much of its own queue for a session that begins to listen? */
extern bool herald_slow_ends_has_long_queue(void);

#endif							/* HERALD_SLOW_ENDS_H */
