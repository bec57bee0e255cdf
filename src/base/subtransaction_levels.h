/*-------------------------------------------------------------------------
 *
 * subtransaction_levels.h
 *	  Where each open subtransaction began to append to a list.
 *
 * Subtransactions nest strictly, so the items of the innermost one are the end of the list.
 * Rolling it back truncates the list to where it began; committing it forgets where it began.
 * Neither scans the items.
 *
 * A subtransaction gets a level on the stack only when it appends something; the top
 * transaction begins at 0 and has no level.  "Current" means GetCurrentTransactionNestLevel(),
 * in a subtransaction's callback, too.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SUBTRANSACTION_LEVELS_H
#define HERALD_SUBTRANSACTION_LEVELS_H

#include "postgres.h"

typedef struct HeraldLevel
{
	int			nesting;
	uint64		start;			/* length of the list when the subtransaction
								 * began */
} HeraldLevel;

/* One for each list; zeroed at first. */
typedef struct HeraldLevels
{
	HeraldLevel *open;			/* innermost last; in TopMemoryContext, never
								 * freed */
	int			used;
	int			size;
} HeraldLevels;

/* The current subtransaction is about to append to a list of this length.  May throw. */
extern void herald_levels_note(HeraldLevels *levels, uint64 length);

/* The current subtransaction was committed: what it appended is its parent's. */
extern void herald_levels_subcommit(HeraldLevels *levels);

/*
 * The current subtransaction was rolled back.  Returns the length to which to truncate the
 * list.
 */
extern uint64 herald_levels_subabort(HeraldLevels *levels, uint64 length);

/* The transaction is over. */
extern void herald_levels_reset(HeraldLevels *levels);

#endif							/* HERALD_SUBTRANSACTION_LEVELS_H */
