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
#include "base/channel_hash.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/own_channels.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/dispatch/dispatch.h"
#include "notify/position/bypass.h"
#include "notify/sender/notify.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/settings/channel_settings.h"

PG_FUNCTION_INFO_V1(herald_pg_notify);

/*
 * Of this transaction.  is_native: the server has some of its notifications already.
 * ends_natively: herald.enabled was off when it sent one.
 */
static bool is_native;
static bool ends_natively;

static void notify_natively(const char *channel, const char *payload);
static bool any_pending_is_logged(void);
static void note_logged(const HeraldEntry *entry);
static bool has_too_long_payload(void);
herald_noreturn static void report_split(void);
herald_noreturn static void report_reserved(const char *channel);
static void check(const char *channel, size_t channel_length, size_t payload_length);

/* For note_logged(). */
static bool found_logged;


void
herald_notify(const char *channel, const char *payload)
{
	size_t		channel_length = channel ? strlen(channel) : 0;
	size_t		payload_length = payload ? strlen(payload) : 0;
	bool		is_new;

	/*
	 * After our PRE_COMMIT callback a notification (of another module's
	 * callback) can only go through the server's own queue; before PREPARE
	 * TRANSACTION the server then refuses it. The same applies when our queue
	 * is damaged, except that a notification after pending ones becomes
	 * pending too, to keep the order.
	 */
	if (!herald_activation_is_on() || herald_is_committing ||
		(herald_shared_is_damaged() && herald_pending_count() == 0))
	{
		notify_natively(channel, payload);
		return;
	}

	if (IsParallelWorker())
		elog(ERROR, "cannot send notifications from a parallel worker");
	check(channel, channel_length, payload_length);

	if (Trace_notify)
		elog(DEBUG1, "herald_notify(%s)", channel);

	/*
	 * The commit looks listeners up, and must not fail; nor read the
	 * settings, which might wait.
	 */
	herald_dispatch_attach();
	herald_channel_settings_read();

	herald_is_involved = true;
	ends_natively = ends_natively || !herald_enabled;
	is_new = herald_pending_add(channel, channel_length, payload ? payload : "", payload_length,
								!is_native && !ends_natively);
	if (!is_native && !ends_natively)
		herald_shared_count(is_new ? HERALD_COUNT_NOTIFICATIONS : HERALD_COUNT_DUPLICATES, 1);
}

/* What cannot be logged fails here, at its caller. */
static void
notify_natively(const char *channel, const char *payload)
{
	if (channel && channel[0] != '\0' && herald_activation_is_on())
	{
		if (!herald_is_committing && herald_own_channel(channel))
			report_reserved(channel);
		herald_channel_settings_read();
		if (herald_is_committing)
			(void) herald_channel_settings_use();
		if (herald_channel_settings_include(channel))
			herald_publish_refuse(channel);
	}
	herald_notify_go_native();
	Async_Notify(channel, payload);
	herald_bypass_add(herald_channel_hash(channel, strlen(channel)));
}

void
herald_notify_go_native(void)
{
	is_native = true;
	herald_is_involved = true;

	/*
	 * After our PRE_COMMIT callback pending notifications are already in the
	 * queue.
	 */
	if (!herald_is_committing && !has_too_long_payload() && !any_pending_is_logged())
		herald_publish_natively();
}

void
herald_notify_go_native_unseen(void)
{
	herald_bypass_add_unseen();
	herald_notify_go_native();
}

/*
 * All of a transaction goes through one queue, so that its order is kept.  Ours has what is
 * logged, and what is too long for the server's own.
 */
void
herald_notify_choose_queue(bool would_delay_others)
{
	bool		natively = is_native || ends_natively || would_delay_others;

	if (herald_bypass_has_unseen() && herald_activation_is_on())
		herald_channel_settings_await();
	if (herald_bypass_has_unseen() && herald_activation_is_on() && herald_channel_settings_use())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("settings of channels have changed during this transaction"),
				 errdetail("It has called pg_notify() where pg_herald does not see the channel, which may be logged now."),
				 errhint("Repeat the transaction.")));
	if (!natively || herald_pending_count() == 0)
		return;
	(void) herald_channel_settings_use();
	if (has_too_long_payload() || any_pending_is_logged())
	{
		if (is_native)
			report_split();
		return;
	}
	herald_publish_all_natively();
}

/* By the settings that this commit uses, or, before it begins, by those that the session knows. */
static bool
any_pending_is_logged(void)
{
	found_logged = false;
	if (herald_pending_count() > 0 && herald_channel_settings_any())
		herald_pending_visit(note_logged);
	return found_logged;
}

static void
note_logged(const HeraldEntry *entry)
{
	found_logged = found_logged || herald_channel_settings_include(herald_entry_channel(entry));
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
	is_native = ends_natively = false;
}

/*
 * herald.pg_notify(channel text, payload text), pg_herald_notify(the same) → void
 *
 * The second replaces the built-in pg_notify() in finished plans (retarget.c), the first may be called
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
report_split(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("this transaction cannot send all its notifications through one queue"),
			 errdetail("The server's own queue has some of them already. A notification on a logged channel, or with a payload of more than %d bytes, cannot go there.",
					   HERALD_PAYLOAD_MAX_OF_SERVER),
			 errhint("Send them in different transactions.")));
}

static void
report_reserved(const char *channel)
{
	ereport(ERROR,
			(errcode(ERRCODE_RESERVED_NAME),
			 errmsg("channel name \"%s\" is reserved", channel),
			 errdetail("pg_herald tells sessions that listen to it their positions there, or that they have missed notifications.")));
}
