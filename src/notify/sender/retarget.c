/*-------------------------------------------------------------------------
 *
 * retarget.c
 *	  Puts pg_herald's functions into finished plans.
 *
 * pg_notify() is a built-in function: the function manager calls it by its oid without reading
 * pg_proc, so replacing it there would have no effect.  But a plan contains the oid to call.
 * It has to be the finished plan: the body of an inlined SQL function appears only during
 * planning.
 *
 * An expression that PL/pgSQL evaluates by itself has been planned as well, but passes no hook
 * when it runs.
 *
 * Calls that never pass the planner (COPY's defaults, CHECK constraints, arguments of CALL and
 * EXECUTE, the fast-path protocol) still reach the built-in function: see access_hook() in hooks.c.
 *
 * Both functions are volatile, so places where the planner puts no volatile function need not
 * be searched: index, hash and merge clauses, sort keys.  A test has the list of all plan
 * nodes and of the fields that are walked, and compares it with the server's headers:
 * test/py/semantics/test_plan_nodes.py.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

#include "base/activation.h"
#include "base/compat.h"
#include "notify/sender/retarget.h"

typedef struct Functions
{
	Oid			notify;
	Oid			usage;
} Functions;

typedef struct Retargeting
{
	Functions	from;
	Functions	to;
	bool		notify;			/* that function was found and replaced */
	bool		usage;
} Retargeting;

static const Functions built_in = {F_PG_NOTIFY, F_PG_NOTIFICATION_QUEUE_USAGE};

/* The functions that the last plan changed in this session calls. */
static Functions ours;

/* A plan was left as it is, since the extension was not there. */
static bool keeps_built_in;

static Retargeting replace_in(PlannedStmt *plan);
static void walk_statement(PlannedStmt *plan, Retargeting *context);
static void walk_plan(Plan *plan, Retargeting *context);
static void walk_plans(List *plans, Retargeting *context);
static void walk_join_or_scan(Plan *plan, Retargeting *context);
static void walk_modify_table(ModifyTable *plan, Retargeting *context);
static void walk(void *expressions, Retargeting *context);
static bool replace(Node *node, void *context);
static void depend_on(PlannedStmt *plan, Oid function);


void
herald_retarget_plan(PlannedStmt *plan)
{
	Retargeting search = {.from = built_in};

	/* The catalog is looked up only for plans that concern us. */
	walk_statement(plan, &search);
	if (!search.notify && !search.usage)
		return;
	if (!herald_activation_is_on() || !OidIsValid(herald_activation_notify_function()))
	{
		keeps_built_in = true;
		return;
	}
	search = replace_in(plan);

	/* A plan that is kept must not outlive the extension. */
	if (search.notify)
		depend_on(plan, ours.notify);
	if (search.usage && OidIsValid(ours.usage))
		depend_on(plan, ours.usage);
}

void
herald_retarget_kept(PlannedStmt *plan)
{
	Retargeting context = {.from = ours,.to = built_in};
	bool		is_on;

	if (!keeps_built_in && !OidIsValid(ours.notify))
		return;
	is_on = herald_activation_is_on() && OidIsValid(herald_activation_notify_function());
	if (OidIsValid(ours.notify) && !(is_on && herald_activation_notify_function() == ours.notify))
		walk_statement(plan, &context);

	/* The extension has been created since: all other plans are made again. */
	if (keeps_built_in && is_on)
	{
		(void) replace_in(plan);
		keeps_built_in = false;
	}
}

static Retargeting
replace_in(PlannedStmt *plan)
{
	Functions	current = {herald_activation_notify_function(), herald_activation_usage_function()};
	Retargeting context = {.from = built_in,.to = current};

	walk_statement(plan, &context);
	if (context.notify || context.usage)
		ours = current;
	return context;
}

static void
walk_statement(PlannedStmt *plan, Retargeting *context)
{
	walk_plan(plan->planTree, context);
	walk_plans(plan->subplans, context);
}

static void
walk_plan(Plan *plan, Retargeting *context)
{
	if (plan == NULL)
		return;
	check_stack_depth();

	walk(plan->targetlist, context);
	walk(plan->qual, context);
	walk(plan->initPlan, context);

	switch (nodeTag(plan))
	{
		case T_ModifyTable:
			walk_modify_table((ModifyTable *) plan, context);
			break;
		case T_Result:
			walk(((Result *) plan)->resconstantqual, context);
			break;
		case T_Limit:
			walk(((Limit *) plan)->limitOffset, context);
			walk(((Limit *) plan)->limitCount, context);
			break;
		case T_WindowAgg:
			walk(((WindowAgg *) plan)->startOffset, context);
			walk(((WindowAgg *) plan)->endOffset, context);
			break;
		case T_Append:
			walk_plans(((Append *) plan)->appendplans, context);
			break;
		case T_MergeAppend:
			walk_plans(((MergeAppend *) plan)->mergeplans, context);
			break;
		default:
			walk_join_or_scan(plan, context);
			break;
	}

	walk_plan(plan->lefttree, context);
	walk_plan(plan->righttree, context);
}

static void
walk_plans(List *plans, Retargeting *context)
{
	ListCell   *cell;

	foreach(cell, plans)
		walk_plan((Plan *) lfirst(cell), context);
}

static void
walk_join_or_scan(Plan *plan, Retargeting *context)
{
	switch (nodeTag(plan))
	{
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			walk(((Join *) plan)->joinqual, context);
			break;
		case T_SampleScan:
			walk(((SampleScan *) plan)->tablesample, context);
			break;
		case T_SubqueryScan:
			walk_plan(((SubqueryScan *) plan)->subplan, context);
			break;
		case T_FunctionScan:
			walk(((FunctionScan *) plan)->functions, context);
			break;
		case T_TableFuncScan:
			walk(((TableFuncScan *) plan)->tablefunc, context);
			break;
		case T_ValuesScan:
			walk(((ValuesScan *) plan)->values_lists, context);
			break;
		case T_ForeignScan:
			walk(((ForeignScan *) plan)->fdw_exprs, context);
			walk(((ForeignScan *) plan)->fdw_recheck_quals, context);
			break;
		case T_CustomScan:
			walk(((CustomScan *) plan)->custom_exprs, context);
			walk_plans(((CustomScan *) plan)->custom_plans, context);
			break;
		default:
			break;
	}
}

static void
walk_modify_table(ModifyTable *plan, Retargeting *context)
{
	walk(plan->withCheckOptionLists, context);
	walk(plan->returningLists, context);
	walk(plan->onConflictSet, context);
	walk(plan->onConflictWhere, context);
	walk(plan->mergeActionLists, context);
	walk(herald_merge_join_conditions(plan), context);
}

static void
walk(void *expressions, Retargeting *context)
{
	(void) replace((Node *) expressions, context);
}

/* Changes nodes in place: they belong only to this plan. */
static bool
replace(Node *node, void *context)
{
	Retargeting *found = context;

	if (node == NULL)
		return false;

	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;

		if (call->funcid == found->from.notify)
		{
			call->funcid = OidIsValid(found->to.notify) ? found->to.notify : call->funcid;
			found->notify = true;
		}
		else if (call->funcid == found->from.usage)
		{
			call->funcid = OidIsValid(found->to.usage) ? found->to.usage : call->funcid;
			found->usage = true;
		}
	}
	return expression_tree_walker(node, replace, context);
}

static void
depend_on(PlannedStmt *plan, Oid function)
{
	PlanInvalItem *item = makeNode(PlanInvalItem);

	item->cacheId = PROCOID;
	item->hashValue = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
	plan->invalItems = lappend(plan->invalItems, item);
}
