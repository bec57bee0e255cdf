/*-------------------------------------------------------------------------
 *
 * notify.c
 *	  NOTIFY, from the statement to the pending notifications.
 *
 * What is refused, and in which words, is the server's (commands/async.c), so
 * that nobody's error handling has to learn anything.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "catalog/pg_proc.h"
#include "commands/async.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "base/activation.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/levels.h"
#include "base/own_channels.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/dispatch/channel_map.h"
#include "notify/sender/notify.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/storage/bypass.h"

PG_FUNCTION_INFO_V1(herald_pg_notify);

/* In this transaction; see herald_notify_go_native(). */
static bool is_native;

/*
 * What has gone there and counts: so much is known, without what has been rolled back; and
 * what is not known, for an expression that calls the built-in may outlast a subtransaction.
 */
static uint64 natives;
static HeraldLevels natives_levels;
static bool may_be_native;

static void go_native(void);
static bool is_reserved(const char *channel);
herald_noreturn static void report_reserved(const char *channel);
static bool is_too_long(void);
static void check(const char *channel, size_t channel_length, size_t payload_length);


void
herald_notify(const char *channel, const char *payload)
{
	size_t		channel_length = channel ? strlen(channel) : 0;
	size_t		payload_length = payload ? strlen(payload) : 0;

	/*
	 * After our callback before the commit only the server's own way is still
	 * open (for the callback of some other module); before PREPARE TRANSACTION
	 * the server then refuses that.  So it is when our queue is damaged; but
	 * what comes after pending ones follows them, in their order.
	 */
	if (!herald_enabled || !herald_activation_is_on() || herald_is_committing ||
		(is_native && payload_length <= HERALD_PAYLOAD_MAX_OF_SERVER) ||
		(herald_shared_is_damaged() && herald_pending_count() == 0))
	{
		herald_notify_natively(channel);
		Async_Notify(channel, payload);
		return;
	}

	if (IsParallelWorker())
		elog(ERROR, "cannot send notifications from a parallel worker");
	check(channel, channel_length, payload_length);

	if (Trace_notify)
		elog(DEBUG1, "herald_notify(%s)", channel);

	/* The commit will look listeners up, and must not fail. */
	herald_channels_attach();

	herald_is_involved = true;
	if (herald_pending_add(channel, channel_length, payload ? payload : "", payload_length))
		herald_shared_count(HERALD_COUNT_NOTIFICATIONS, 1);
	else
		herald_shared_count(HERALD_COUNT_DUPLICATES, 1);
}

void
herald_notify_natively(const char *channel)
{
	if (is_reserved(channel) && !herald_is_committing && herald_activation_is_on())
		report_reserved(channel);
	herald_levels_mark(&natives_levels, natives);
	natives++;
	go_native();
}

void
herald_notify_go_native(void)
{
	may_be_native = true;
	go_native();
}

static void
go_native(void)
{
	is_native = true;
	herald_is_involved = true;

	/* After our callback before the commit what is pending has its place in our queue. */
	if (herald_is_committing)
		herald_bypass_begin();
	else if (!is_too_long())
		herald_publish_natively();
}

void
herald_notify_hand_over(void)
{
	/* The extension may have come since then, or may have been here before. */
	if ((natives > 0 || may_be_native) && (herald_bypass_is_counted() || herald_activation_is_on()))
		herald_bypass_begin();
	if (!is_native || herald_pending_count() == 0)
		return;
	herald_bypass_begin();
	if (is_too_long())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this transaction cannot send all its notifications through the server's own queue"),
				 errdetail("It needs that queue for some of them, and for all if it has executed very many LISTENs, or LISTEN while others use that queue. A payload of more than %d bytes does not fit there.",
						   HERALD_PAYLOAD_MAX_OF_SERVER),
				 errhint("Send them in different transactions.")));
	herald_publish_all_natively();
}

/* Is there something that the server's own way cannot carry? */
static bool
is_too_long(void)
{
	return herald_pending_longest_payload() > HERALD_PAYLOAD_MAX_OF_SERVER;
}

void
herald_notify_subcommit(void)
{
	herald_levels_subcommit(&natives_levels);
}

void
herald_notify_subabort(void)
{
	natives = herald_levels_subabort(&natives_levels, natives);
}

void
herald_notify_end(bool committed)
{
	/* The database may have got its counter since our callback before the commit: counted at once. */
	if (committed && (natives > 0 || may_be_native) && herald_bypass_is_counted())
		herald_bypass_begin();
	herald_bypass_end(committed);
	herald_levels_reset(&natives_levels);
	natives = 0;
	is_native = may_be_native = false;
}

/*
 * herald.pg_notify(channel text, payload text) → void
 *
 * Takes the place of the built-in pg_notify() in finished plans (retarget.c),
 * and may be called as well.  NULL for either counts as empty.  A user that may
 * not execute the built-in may not execute this.
 */
Datum
herald_pg_notify(PG_FUNCTION_ARGS)
{
	const char *channel = PG_ARGISNULL(0) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *payload = PG_ARGISNULL(1) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(1));

	/* Once per call site, as the executor does it for any function. */
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
	if (is_reserved(channel))
		report_reserved(channel);
	if (payload_length > (size_t) herald_max_payload)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("payload string too long")));
}

static bool
is_reserved(const char *channel)
{
	return channel != NULL && herald_own_channel(channel);
}

static void
report_reserved(const char *channel)
{
	ereport(ERROR,
			(errcode(ERRCODE_RESERVED_NAME),
			 errmsg("channel name \"%s\" is reserved", channel),
			 errdetail("pg_herald tells sessions that listen to it their positions there, or that they have missed notifications.")));
}
