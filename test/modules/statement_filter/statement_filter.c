/*-------------------------------------------------------------------------
 *
 * statement_filter.c
 *	  A module that handles some LISTEN statements itself, as a filter of
 *	  statements does.
 *
 * LISTEN refused does nothing, without an error; LISTEN renamed listens on
 * channel "other".
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

PG_MODULE_MAGIC;

static ProcessUtility_hook_type prev_utility_hook;

extern void _PG_init(void);
static void utility_hook(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
						 ProcessUtilityContext context, ParamListInfo params,
						 QueryEnvironment *environment, DestReceiver *dest,
						 QueryCompletion *completion);


void
_PG_init(void)
{
	prev_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}

static void
utility_hook(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	if (IsA(pstmt->utilityStmt, ListenStmt))
	{
		ListenStmt *statement = (ListenStmt *) pstmt->utilityStmt;

		if (strcmp(statement->conditionname, "refused") == 0)
			return;
		if (strcmp(statement->conditionname, "renamed") == 0)
			statement->conditionname = pstrdup("other");
	}
	(prev_utility_hook ? prev_utility_hook : standard_ProcessUtility)
		(pstmt, query_string, read_only_tree, context, params, environment, dest, completion);
}
