/*-------------------------------------------------------------------------
 *
 * listen.c
 *	  SQL functions for clients that listen and later resume: herald.position(), herald.listen().
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "notify/listener/resumption.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/gone.h"
#include "notify/position/token.h"
#include "notify/sender/notify.h"

PG_FUNCTION_INFO_V1(herald_position);
PG_FUNCTION_INFO_V1(herald_listen);

static void execute_listen(char *channel);


/*
 * herald.position() → text
 *
 * In a session that listens, returns the position up to which everything has been sent to the client.  While the
 * session's channels have been delivered up to different places, returns a position from which no client can resume.
 * In a session that does not listen, returns a position after all notifications that were sent before the call, except
 * those in the queue behind a transaction that is still committing.
 */
Datum
herald_position(PG_FUNCTION_ARGS)
{
	HeraldToken token = herald_session_position();
	HeraldTokenHash *hash = herald_token_hash_open();
	char		text[HERALD_TOKEN_MAX + 1];

	herald_token_write(hash, &token, text);
	herald_token_hash_close(hash);
	PG_RETURN_TEXT_P(cstring_to_text(text));
}

/*
 * herald.listen(channel text, after text) → boolean
 *
 * Listens to the channel like LISTEN, but first delivers the notifications that were sent on the channel after the
 * position `after`.  Returns false if not all of these notifications can be delivered now; a DEBUG1 message says why.
 * Returns null if `after` is null.  If the result is false or null, delivery begins as after LISTEN.
 */
Datum
herald_listen(PG_FUNCTION_ARGS)
{
	char	   *channel = PG_ARGISNULL(0) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(0));
	HeraldToken token;
	HeraldGone	gone = herald_gone(HERALD_GONE_NOTHING);

	herald_check_channel(strlen(channel));
	if (!PG_ARGISNULL(1))
		gone = herald_token_read(text_to_cstring(PG_GETARG_TEXT_PP(1)), &token);
	execute_listen(channel);
	if (!herald_subscriptions_any_to_add(channel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("could not listen to channel \"%s\"", channel),
				 errdetail("Another module has answered the LISTEN in its own way."),
				 errhint("Look for a module that filters statements in shared_preload_libraries and session_preload_libraries.")));
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (!herald_is_gone(gone))
		gone = herald_resumption_begin(channel, &token);
	if (herald_is_gone(gone))
		herald_gone_tell(gone, channel);
	PG_RETURN_BOOL(!herald_is_gone(gone));
}

/* Execute LISTEN like a statement of the client, so that the server and other modules can react to it. */
static void
execute_listen(char *channel)
{
	ListenStmt *statement = makeNode(ListenStmt);
	PlannedStmt *planned = makeNode(PlannedStmt);

	statement->conditionname = channel;
	planned->commandType = CMD_UTILITY;
	planned->canSetTag = false;
	planned->utilityStmt = (Node *) statement;
	planned->stmt_location = -1;
	ProcessUtility(planned, "LISTEN", false, PROCESS_UTILITY_QUERY, NULL, NULL,
				   None_Receiver, NULL);
}
