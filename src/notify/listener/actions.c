/*-------------------------------------------------------------------------
 *
 * actions.c
 *	  The LISTENs and UNLISTENs of this transaction, in order, until they take effect.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "base/subtransaction_levels.h"
#include "notify/listener/actions.h"

static List *actions;			/* of HeraldAction, in the transaction's
								 * memory */

/* Where each subtransaction began to add. */
static HeraldLevels levels;


void
herald_actions_add(HeraldActionKind kind, const char *channel)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	HeraldAction *action = palloc0(sizeof(HeraldAction));

	action->kind = kind;
	strlcpy(action->channel, channel, NAMEDATALEN);
	herald_levels_note(&levels, list_length(actions));
	actions = lappend(actions, action);
	MemoryContextSwitchTo(caller);
}

void
herald_actions_subcommit(void)
{
	herald_levels_subcommit(&levels);
}

void
herald_actions_subabort(void)
{
	actions = list_truncate(actions, (int) herald_levels_subabort(&levels, list_length(actions)));
}

void
herald_actions_reset(void)
{
	actions = NIL;
	herald_levels_reset(&levels);
}

int
herald_actions_count(void)
{
	return list_length(actions);
}

const HeraldAction *
herald_actions_get(int index)
{
	return list_nth(actions, index);
}

HeraldAction *
herald_actions_find_listen(const char *channel)
{
	for (int i = list_length(actions); i-- > 0;)
	{
		HeraldAction *action = list_nth(actions, i);

		if (action->kind == HERALD_ACTION_UNLISTEN_ALL || strcmp(action->channel, channel) == 0)
			return action->kind == HERALD_ACTION_LISTEN ? action : NULL;
	}
	return NULL;
}

bool
herald_actions_any(bool listens)
{
	for (int i = 0; i < list_length(actions); i++)
		if ((herald_actions_get(i)->kind == HERALD_ACTION_LISTEN) == listens)
			return true;
	return false;
}

bool
herald_actions_any_past(void)
{
	for (int i = 0; i < list_length(actions); i++)
		if (herald_actions_get(i)->has_past)
			return true;
	return false;
}

int
herald_actions_last_unlisten_all(void)
{
	int			i = list_length(actions) - 1;

	while (i > 0 && herald_actions_get(i)->kind != HERALD_ACTION_UNLISTEN_ALL)
		i--;
	return Max(i, 0);
}
