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

#include "utils/memutils.h"

#include "base/subtransaction_levels.h"
#include "notify/listener/actions.h"

/* In the transaction's memory. */
static HeraldAction *actions;
static int	used;
static int	size;

/* Where each subtransaction began to add. */
static HeraldLevels levels;


void
herald_actions_add(HeraldActionKind kind, const char *channel)
{
	HeraldAction *action;

	if (used == size)
	{
		int			more = Max(8, size * 2);

		if (actions == NULL)
			actions = MemoryContextAlloc(TopTransactionContext, more * sizeof(HeraldAction));
		else
			actions = repalloc_huge(actions, more * sizeof(HeraldAction));
		size = more;
	}

	herald_levels_mark(&levels, used);
	action = &actions[used++];
	memset(action, 0, sizeof(*action));
	action->kind = kind;
	strlcpy(action->channel, channel, NAMEDATALEN);
}

void
herald_actions_subcommit(void)
{
	herald_levels_subcommit(&levels);
}

void
herald_actions_subabort(void)
{
	used = (int) herald_levels_subabort(&levels, used);
}

void
herald_actions_reset(void)
{
	actions = NULL;
	used = size = 0;
	herald_levels_reset(&levels);
}

int
herald_actions_count(void)
{
	return used;
}

const HeraldAction *
herald_actions_get(int index)
{
	return &actions[index];
}

HeraldAction *
herald_actions_find_listen(const char *channel)
{
	for (int i = used; i-- > 0;)
	{
		HeraldAction *action = &actions[i];

		if (action->kind == HERALD_ACTION_UNLISTEN_ALL || strcmp(action->channel, channel) == 0)
			return action->kind == HERALD_ACTION_LISTEN ? action : NULL;
	}
	return NULL;
}

bool
herald_actions_any(bool listens)
{
	for (int i = 0; i < used; i++)
		if ((actions[i].kind == HERALD_ACTION_LISTEN) == listens)
			return true;
	return false;
}

int
herald_actions_last_unlisten_all(void)
{
	int			i = used - 1;

	while (i > 0 && actions[i].kind != HERALD_ACTION_UNLISTEN_ALL)
		i--;
	return Max(i, 0);
}
