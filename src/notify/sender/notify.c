/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  NOTIFY, from the statement to the pending notifications.
 *
 * The errors and their messages are those of the server (commands/async.c), so that error
 * handling in applications need not change.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "catalog/pg_proc.h"
#include "commands/async.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "base/activation.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/own_channels.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/channels/channel_settings.h"
#include "notify/dispatch/dispatch.h"
#include "notify/logged/log_writer.h"
#include "notify/position/bypass.h"
#include "notify/sender/notify.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"

PG_FUNCTION_INFO_V1(herald_pg_notify);

/*
 * Of this transaction: see herald_notify_go_native(), herald_notify_send_natively_at_end() and
 * herald_notify_go_native_unseen().
 */
static bool is_native;
static bool ends_natively;
static bool has_unseen;

static void notify_natively(const char *channel, const char *payload);
static bool is_logged(const char *channel, const char *payload);
static bool server_has_some(void);
herald_noreturn static void report_reserved(const char *channel);
static bool has_too_long_payload(void);
static void check(const char *channel, size_t channel_length, size_t payload_length);


void
herald_notify(const char *channel, const char *payload)
{
	size_t		channel_length = channel ? strlen(channel) : 0;
	size_t		payload_length = payload ? strlen(payload) : 0;
	bool		is_new;

	/*
	 * After our PRE_COMMIT callback a notification (of another module's callback) can only go
	 * through the server's own queue; before PREPARE TRANSACTION the server then refuses it.
	 * The same applies when our queue is damaged, except that a notification after pending
	 * ones becomes pending too, to keep the order.
	 */
	if (!herald_activation_is_on() || herald_is_committing ||
		(is_native && payload_length <= HERALD_PAYLOAD_MAX_OF_SERVER) ||
		(herald_shared_is_damaged() && herald_pending_count() == 0))
	{
		if (channel && herald_activation_is_on() && !herald_is_committing && herald_own_channel(channel))
			report_reserved(channel);
		notify_natively(channel, payload);
		return;
	}

	if (IsParallelWorker())
		elog(ERROR, "cannot send notifications from a parallel worker");
	check(channel, channel_length, payload_length);

	if (Trace_notify)
		elog(DEBUG1, "herald_notify(%s)", channel);

	/* The commit looks listeners up, and must not fail. */
	herald_dispatch_attach();

	herald_is_involved = true;
	ends_natively = ends_natively || !herald_enabled;
	is_new = herald_pending_add(channel, channel_length, payload ? payload : "", payload_length, !ends_natively);
	if (!ends_natively)
		herald_shared_count(is_new ? HERALD_COUNT_NOTIFICATIONS : HERALD_COUNT_DUPLICATES, 1);
}

/*
 * A notification on a logged channel becomes pending as well, and is handed over at once: so it
 * is logged at the commit, unless its subtransaction is rolled back before.
 */
static void
notify_natively(const char *channel, const char *payload)
{
	bool		logged = is_logged(channel, payload);

	if (logged && !herald_is_committing)
	{
		(void) herald_pending_add(channel, strlen(channel), payload ? payload : "", payload ? strlen(payload) : 0, false);
		herald_notify_go_native();
		return;
	}
	herald_notify_go_native();
	Async_Notify(channel, payload);
	if (logged)
		herald_log_native(channel, payload ? payload : "");
}

/* Is this a valid notification for the server's own queue, on a logged channel? */
static bool
is_logged(const char *channel, const char *payload)
{
	size_t		length = channel ? strlen(channel) : 0;

	return length > 0 && length < NAMEDATALEN &&
		(payload == NULL || strlen(payload) <= HERALD_PAYLOAD_MAX_OF_SERVER) &&
		!IsParallelWorker() && herald_activation_is_on() && herald_settings_any_logged() &&
		herald_channel_is_logged(channel);
}

void
herald_notify_go_native(void)
{
	is_native = true;
	herald_is_involved = true;

	/* After our PRE_COMMIT callback pending notifications are already in the queue. */
	if (herald_is_committing)
		herald_bypass_forget();
	else if (!has_too_long_payload())
		herald_publish_natively();
}

void
herald_notify_go_native_unseen(void)
{
	has_unseen = true;
	herald_notify_go_native();
}

/* No hook of ours sees that a C function notifies. */
bool
herald_notify_has_unseen(bool may_ask)
{
	return has_unseen || (may_ask && !is_native && !RecoveryInProgress() && server_has_some());
}

void
herald_notify_log_unseen(void)
{
	if (!RecoveryInProgress() && herald_settings_hold())
		herald_log_unknown();
}

/*
 * A payload that is too long for the server's queue keeps all of them in ours; then other
 * sessions' notifications may have to wait for this commit.
 */
void
herald_notify_send_natively_at_end(void)
{
	ends_natively = ends_natively || !has_too_long_payload();
}

/*
 * If the server sends nothing else of this transaction, all its native notifications are known
 * here: then only tokens for the channels that it notifies become invalid.
 */
void
herald_notify_hand_over(void)
{
	if (!(is_native || ends_natively) || herald_pending_count() == 0)
		return;
	if (has_too_long_payload())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this transaction cannot send all its notifications through the server's own queue"),
				 errdetail("It needs that queue for some of them, and for all if it has executed very many LISTENs, or begins to LISTEN while that queue is long. A payload of more than %d bytes does not fit there.",
						   HERALD_PAYLOAD_MAX_OF_SERVER),
				 errhint("Send them in different transactions.")));
	if (!is_native && !server_has_some())
		herald_bypass_begin();
	herald_publish_all_natively();
}

/*
 * Does the server have notifications or LISTENs of this transaction?  The server checks this
 * itself before PREPARE TRANSACTION, and throws an error if it does.
 */
static bool
server_has_some(void)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool result = false;

	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		(void) MemoryContextSwitchTo(caller);
		FlushErrorState();
		result = true;
	}
	PG_END_TRY();
	return result;
}

/* Does any payload not fit into the server's own queue? */
static bool
has_too_long_payload(void)
{
	return herald_pending_longest_payload() > HERALD_PAYLOAD_MAX_OF_SERVER;
}

void
herald_notify_reset(void)
{
	herald_bypass_forget();
	is_native = ends_natively = has_unseen = false;
}

/*
 * herald.pg_notify(channel text, payload text) → void
 *
 * Replaces the built-in pg_notify() in finished plans (retarget.c), and may also be called
 * directly.  NULL for either argument counts as empty.  Requires the privilege to execute the
 * built-in function.
 */
Datum
herald_pg_notify(PG_FUNCTION_ARGS)
{
	const char *channel = PG_ARGISNULL(0) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *payload = PG_ARGISNULL(1) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* Once per call site, as the executor does for any function. */
	if (fcinfo->flinfo->fn_extra == NULL)
	{
		AclResult	result = object_aclcheck(ProcedureRelationId, F_PG_NOTIFY,
											 GetUserId(), ACL_EXECUTE);

		if (result != ACLCHECK_OK)
			aclcheck_error(result, OBJECT_FUNCTION, "pg_notify");
		fcinfo->flinfo->fn_extra = fcinfo->flinfo;
	}

	PreventCommandDuringRecovery("NOTIFY");
	herald_notify(channel, payload);
	PG_RETURN_VOID();
}

void
herald_check_channel(size_t length)
{
	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("channel name cannot be empty")));
	if (length >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("channel name too long")));
}

static void
check(const char *channel, size_t channel_length, size_t payload_length)
{
	herald_check_channel(channel_length);
	if (herald_own_channel(channel))
		report_reserved(channel);
	if (payload_length > (size_t) (herald_enabled ? herald_max_payload : HERALD_PAYLOAD_MAX_OF_SERVER))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("payload string too long")));
}

static void
report_reserved(const char *channel)
{
	ereport(ERROR,
			(errcode(ERRCODE_RESERVED_NAME),
			 errmsg("channel name \"%s\" is reserved", channel),
			 errdetail("pg_herald tells sessions that listen to it their positions there, or that they have missed notifications.")));
}
