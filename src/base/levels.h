/*-------------------------------------------------------------------------
 *
 * levels.h
 *	  Where each open subtransaction began to append to a list.
 *
 * What a transaction appends stands in the order of its subtransactions: they nest
 * strictly, so what the innermost has appended is the list's end.  To roll it back
 * is to cut the list where it began; to commit it is to forget where it began.
 * Nothing is looked through, whatever the number of items.
 *
 * A level of the stack is made only when its subtransaction appends something;
 * the top transaction begins at 0 and has none.  "Current" means
 * GetCurrentTransactionNestLevel(), in a subtransaction's callback, too.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LEVELS_H
#define HERALD_LEVELS_H

#include "postgres.h"

typedef struct HeraldLevel
{
	int			nesting;
	uint64		start;			/* length of the list when it began */
} HeraldLevel;

/* One for each list; zeroed at first. */
typedef struct HeraldLevels
{
	HeraldLevel *open;			/* innermost last; in TopMemoryContext, and kept */
	int			used;
	int			size;
} HeraldLevels;

/* The current subtransaction is about to append to a list of that length.  May throw. */
extern void herald_levels_mark(HeraldLevels *levels, uint64 length);

/* The current subtransaction was committed: what it appended is its parent's. */
extern void herald_levels_subcommit(HeraldLevels *levels);

/* The current subtransaction was rolled back.  Returns the length to cut the list to. */
extern uint64 herald_levels_subabort(HeraldLevels *levels, uint64 length);

/* The transaction is over. */
extern void herald_levels_reset(HeraldLevels *levels);

#endif							/* HERALD_LEVELS_H */
