/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Transactions whose notifications go past our queue, by the server's own.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_BYPASS_H
#define HERALD_BYPASS_H

#include "postgres.h"

/*
 * This transaction sends notifications that are not in our queue: before its commit can be
 * seen, and after that (or its abort).  Never fail; harmless to repeat.
 */
extern void herald_bypass_begin(void);
extern void herald_bypass_end(bool committed);

/* How many have committed in this database, and perhaps in others: a number to compare. */
extern uint32 herald_bypass_count(void);

/* The same, for a token: those that come are counted. */
extern uint32 herald_bypass_count_from_now_on(void);

/* False: there is no token of this database that one could spoil. */
extern bool herald_bypass_is_counted(void);

/* Have there been more, or is one committing?  Then what is in our queue is not all that was sent. */
extern bool herald_bypass_since(uint32 count);

#endif							/* HERALD_BYPASS_H */
