/*-------------------------------------------------------------------------
 *
 * subtransaction_levels.c
 *	  Where each open subtransaction began to append to a list.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/subtransaction_levels.h"

static HeraldLevel *current(HeraldLevels *levels);


void
herald_levels_note(HeraldLevels *levels, uint64 length)
{
	int			nesting = GetCurrentTransactionNestLevel();

	if (nesting == 1 || current(levels) != NULL)
		return;

	if (levels->used == levels->size)
	{
		int			size = Max(8, levels->size * 2);

		if (levels->open == NULL)
			levels->open = MemoryContextAlloc(TopMemoryContext, size * sizeof(HeraldLevel));
		else
			levels->open = repalloc_huge(levels->open, size * sizeof(HeraldLevel));
		levels->size = size;
	}
	levels->open[levels->used].nesting = nesting;
	levels->open[levels->used].start = length;
	levels->used++;
}

void
herald_levels_subcommit(HeraldLevels *levels)
{
	HeraldLevel *level = current(levels);
	int			parent = GetCurrentTransactionNestLevel() - 1;

	if (level == NULL)
		return;
	if (parent == 1 || (levels->used > 1 && level[-1].nesting == parent))
		levels->used--;
	else
		level->nesting = parent;	/* the parent had appended nothing, so its
									 * items begin here */
}

uint64
herald_levels_subabort(HeraldLevels *levels, uint64 length)
{
	HeraldLevel *level = current(levels);

	if (level == NULL)
		return length;
	levels->used--;
	return level->start;
}

void
herald_levels_reset(HeraldLevels *levels)
{
	levels->used = 0;
}

/* The level of the current subtransaction; NULL: it has appended nothing. */
static HeraldLevel *
current(HeraldLevels *levels)
{
	HeraldLevel *innermost;

	if (levels->used == 0)
		return NULL;
	innermost = &levels->open[levels->used - 1];
	return innermost->nesting >= GetCurrentTransactionNestLevel() ? innermost : NULL;
}
