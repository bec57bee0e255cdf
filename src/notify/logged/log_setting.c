/*-------------------------------------------------------------------------
 *
 * log_setting.c
 *	  Changes of channel settings, for readers of the WAL.
 *
 * A message in the WAL belongs to the subtransaction that writes it, and readers know top-level
 * transactions only.  So the changes are kept until the transaction is about to commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "base/involvement.h"
#include "base/shared.h"
#include "base/subtransaction_levels.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/channels/channel_settings.h"
#include "notify/logged/anchor.h"
#include "notify/logged/log_setting.h"
#include "notify/logged/relay_state.h"
#include "notify/logged/wal_origin.h"

typedef struct Change
{
	char		pattern[NAMEDATALEN + 1];
	bool		logged;
} Change;

static List *changes;			/* of this transaction, in order; in its memory */
static HeraldLevels levels;
static bool has_written;		/* they are in the WAL */


void
herald_log_setting(const char *pattern, bool logged)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	Change	   *change = palloc(sizeof(Change));

	strlcpy(change->pattern, pattern, sizeof(change->pattern));
	change->logged = logged;
	herald_is_involved = true;
	herald_levels_mark(&levels, list_length(changes));
	changes = lappend(changes, change);
	MemoryContextSwitchTo(caller);

	/* Another module's callback makes the change, after ours. */
	if (herald_is_committing)
		herald_log_setting_write();
}

bool
herald_log_setting_any(void)
{
	return changes != NIL;
}

void
herald_log_setting_write(void)
{
	char		text[HERALD_WAL_SETTING_MAX(NAMEDATALEN)];
	ListCell   *cell;

	if (changes == NIL)
		return;

	herald_relay_await_end();	/* before that no anchor is written here */
	herald_anchor_precede();
	herald_settings_exclude_senders();
	HERALD_STOP_POINT("settings-alone");
	herald_relay_own_setting();
	foreach(cell, changes)
	{
		Change	   *change = lfirst(cell);
		size_t		length = herald_wal_write_setting(text, herald_control->server_run, change->pattern,
													  strlen(change->pattern), change->logged);

		(void) herald_wal_origin_log(text, length, true);
	}
	changes = NIL;
	has_written = true;
}

void
herald_log_setting_subcommit(void)
{
	herald_levels_subcommit(&levels);
}

void
herald_log_setting_subabort(void)
{
	changes = list_truncate(changes, (int) herald_levels_subabort(&levels, list_length(changes)));
}

void
herald_log_setting_reset(void)
{
	herald_levels_reset(&levels);
	changes = NIL;

	/* A token with an older anchor cannot tell on which side of the change it is. */
	if (has_written)
		atomic_store(&herald_control->wants_anchor, 1);
	has_written = false;
}
