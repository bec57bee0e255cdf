/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Hooks into the server: statements and plans.
 *
 * Each of these hooks notes for the session that a statement is running.  The utility hook
 * takes over NOTIFY.  LISTEN, UNLISTEN and DISCARD ALL are executed by the server as well as
 * by us, so that notifications that bypass us still arrive.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_database.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "commands/async.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"

#include "base/activation.h"
#include "base/compat.h"
#include "base/database.h"
#include "base/involvement.h"
#include "base/own_channels.h"
#include "base/attention.h"
#include "hooks.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/anchor.h"
#include "notify/relay/relay.h"
#include "notify/sender/gap.h"
#include "notify/sender/notify.h"
#include "notify/sender/retarget.h"
#include "notify/settings/channel_settings.h"
#include "notify/settings/log_setting.h"

#define UTILITY_PARAMS \
	PlannedStmt *pstmt, const char *query_string, bool read_only_tree, \
	ProcessUtilityContext context, ParamListInfo params, \
	QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion
#define UTILITY_ARGS \
	pstmt, query_string, read_only_tree, context, params, environment, dest, completion

static post_parse_analyze_hook_type prev_analyze_hook;
static planner_hook_type prev_planner_hook;
static ExecutorStart_hook_type prev_executor_start_hook;
static ProcessUtility_hook_type prev_utility_hook;
static object_access_hook_type prev_object_access_hook;

static void statement_begins(void);
static void analyze_hook(HERALD_ANALYZE_PARAMS);
static PlannedStmt *plan_hook(HERALD_PLANNER_PARAMS);
static void executor_start_hook(QueryDesc *query, int flags);
static void utility_hook(UTILITY_PARAMS);
static void listen_on_standby(const char *channel);
static void run_natively_named(UTILITY_PARAMS);
static void run_utility(UTILITY_PARAMS);
static void access_hook(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
						void *arg);
static void call_built_in(void);
static void note_creation(Oid database);


void
herald_hooks_install(void)
{
	prev_analyze_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = analyze_hook;
	prev_planner_hook = planner_hook;
	planner_hook = plan_hook;
	prev_executor_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = executor_start_hook;
	prev_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
	prev_object_access_hook = object_access_hook;
	object_access_hook = access_hook;
}

static void
statement_begins(void)
{
	if (!herald_is_involved)
		return;
	herald_session_statement();
	herald_attention_serve();
}

static void
analyze_hook(HERALD_ANALYZE_PARAMS)
{
	statement_begins();
	if (prev_analyze_hook)
		prev_analyze_hook(HERALD_ANALYZE_ARGS);
}

static PlannedStmt *
plan_hook(HERALD_PLANNER_PARAMS)
{
	PlannedStmt *plan;

	statement_begins();
	plan = prev_planner_hook ? prev_planner_hook(HERALD_PLANNER_ARGS) :
		standard_planner(HERALD_PLANNER_ARGS);
	herald_retarget_plan(plan);
	return plan;
}

static void
executor_start_hook(QueryDesc *query, int flags)
{
	statement_begins();
	herald_retarget_kept(query->plannedstmt);
	if (prev_executor_start_hook)
		prev_executor_start_hook(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
utility_hook(UTILITY_PARAMS)
{
	Node	   *statement = pstmt->utilityStmt;
	char	   *channel;

	statement_begins();

	switch (nodeTag(statement))
	{
		case T_NotifyStmt:
			if (!herald_activation_is_on())
			{
				herald_notify_go_native_unseen();
				break;
			}

			/* Refuse what standard_ProcessUtility() would refuse. */
			if (IsInParallelMode())
				PreventCommandIfParallelMode("NOTIFY");
			PreventCommandDuringRecovery("NOTIFY");
			herald_notify(((NotifyStmt *) statement)->conditionname,
						  ((NotifyStmt *) statement)->payload);
			return;

		case T_ListenStmt:
			channel = ((ListenStmt *) statement)->conditionname;
			if (RecoveryInProgress() && herald_activation_is_on())
				listen_on_standby(channel);
			else if (!herald_own_channel(channel))
				run_utility(UTILITY_ARGS);
			else if (herald_activation_is_on())
				run_natively_named(UTILITY_ARGS);
			else
				break;			/* without the extension it is an ordinary
								 * channel of the server */
			herald_subscriptions_listen(channel);
			return;

		case T_UnlistenStmt:
			channel = ((UnlistenStmt *) statement)->conditionname;
			run_utility(UTILITY_ARGS);
			if (channel == NULL)
				herald_subscriptions_unlisten_all();
			else
			{
				if (herald_own_channel(channel))
					run_natively_named(UTILITY_ARGS);
				herald_subscriptions_unlisten(channel);
			}
			return;

		case T_TransactionStmt:
			if (((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED)
				herald_run_announce();	/* it commits before this session does */
			run_utility(UTILITY_ARGS);
			if (((TransactionStmt *) statement)->chain)
				herald_session_chain();
			return;

		case T_DiscardStmt:
			run_utility(UTILITY_ARGS);
			if (((DiscardStmt *) statement)->target == DISCARD_ALL)
				herald_subscriptions_unlisten_all();
			return;

		default:
			break;
	}
	run_utility(UTILITY_ARGS);
}

static void
access_hook(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (access == OAT_FUNCTION_EXECUTE)
	{
		statement_begins();
		if (object_id == F_PG_NOTIFY)
			call_built_in();
	}
	else if (class_id == ForeignServerRelationId || class_id == ForeignDataWrapperRelationId)
		herald_log_setting_note();
	else if (class_id == DatabaseRelationId && access == OAT_POST_CREATE)
		note_creation(object_id);
	if (prev_object_access_hook)
		prev_object_access_hook(access, class_id, object_id, sub_id, arg);
}

/*
 * If another database had this oid, its positions are not those of this one.  The gap takes a place, so
 * positions from before and after it differ, even if nothing was sent.
 */
static void
note_creation(Oid database)
{
	if (herald_database_find(database) == NULL)
		return;
	herald_gap_publish(database);
	herald_database_created(database);
}

/*
 * The server is about to prepare the built-in pg_notify() for a call, which has not been replaced in
 * a plan, and sends through the server's own queue: by the fast path, which is the only statement of
 * a client that passes no other hook; or as an expression that passes no planner.
 */
static void
call_built_in(void)
{
	if (herald_activation_is_on())
		herald_channel_settings_await();
	if (herald_activation_is_on() && herald_channel_settings_any())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot call function pg_notify() here in a database with logged channels"),
				 errdetail("In this place, such as a CHECK constraint or an argument of EXECUTE or CALL, pg_herald cannot replace the function, and the notification would not be logged."),
				 errhint("Call herald.pg_notify() instead, or notify in another statement.")));
	herald_notify_go_native_unseen();
}

/*
 * The server refuses LISTEN on a standby, where it has no notifications.  The relay has: those on
 * logged channels.  So register the session with the server as it would do itself after that
 * check, and the other ones.  Another module's hook does not see the statement: it would pass it
 * on to the check.
 */
static void
listen_on_standby(const char *channel)
{
	if (!herald_own_channel(channel))
		herald_check_channel_here(channel, "LISTEN");
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", "LISTEN")));
	if (MyBackendType != B_BACKEND)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute %s within a background process", "LISTEN")));

	/*
	 * The relay may not have met the setting yet, and would notify this
	 * session of it as of a change.
	 */
	(void) herald_relay_await_visible();
	herald_relay_await_evidence();
	Async_Listen(herald_own_channel(channel) ? herald_own_channel_native_name(channel) : channel);
}

/* Run LISTEN or UNLISTEN of one of our own channels in the server, with its native name. */
static void
run_natively_named(UTILITY_PARAMS)
{
	/*
	 * copyObject() of PostgreSQL 19 depends on the compiler that built the
	 * server.
	 */
	pstmt = (PlannedStmt *) copyObjectImpl(pstmt);
	if (IsA(pstmt->utilityStmt, ListenStmt))
	{
		ListenStmt *listen = (ListenStmt *) pstmt->utilityStmt;

		listen->conditionname = herald_own_channel_native_name(listen->conditionname);
	}
	else
	{
		UnlistenStmt *unlisten = (UnlistenStmt *) pstmt->utilityStmt;

		unlisten->conditionname = herald_own_channel_native_name(unlisten->conditionname);
	}
	run_utility(UTILITY_ARGS);
}

static void
run_utility(UTILITY_PARAMS)
{
	if (prev_utility_hook)
		prev_utility_hook(UTILITY_ARGS);
	else
		standard_ProcessUtility(UTILITY_ARGS);
}
