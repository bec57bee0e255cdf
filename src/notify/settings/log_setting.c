/*-------------------------------------------------------------------------
 *
 * log_setting.c
 *	  Writes changes of channel settings into the WAL.
 *
 * The settings are options of a foreign server, and many statements can change them.  The access hook notes each change
 * of a foreign server or of a foreign-data wrapper.  Before the commit, herald_channel_settings_changes() finds the
 * changes that have an effect on logging.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/involvement.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/position/anchor.h"
#include "notify/relay/relay.h"
#include "notify/settings/channel_settings.h"
#include "notify/settings/log_setting.h"
#include "notify/wal/wal_origin.h"

static bool is_noted;
static bool has_written;		/* the changes of this transaction are in the
								 * WAL */


void
herald_log_setting_note(void)
{
	if (herald_is_committing)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change a foreign server while the transaction is committing"),
				 errdetail("Another module does this, too late for its effect on logged channels to be written to the WAL.")));
	is_noted = true;
	herald_is_involved = true;
}

bool
herald_log_setting_is_noted(void)
{
	return is_noted;
}

bool
herald_log_setting_any_change(void)
{
	return is_noted && herald_channel_settings_changes() != NIL;
}

void
herald_log_setting_write(void)
{
	List	   *changes = is_noted ? herald_channel_settings_changes() : NIL;
	char		text[HERALD_WAL_SETTING_MAX(NAMEDATALEN)];
	ListCell   *cell;

	if (changes == NIL)
		return;

	herald_relay_await_end();	/* while the relay is active,
								 * herald_anchor_precede() would publish no
								 * anchor */
	herald_anchor_precede();
	herald_channel_settings_exclude_senders();
	HERALD_STOP_POINT("settings-alone");
	herald_relay_own_setting();
	foreach(cell, changes)
	{
		HeraldSettingChange *change = lfirst(cell);
		size_t		length = herald_wal_write_setting(text, herald_control->server_run, change->pattern,
													  strlen(change->pattern), change->logged);

		(void) herald_wal_origin_log(text, length, true);
	}
	has_written = true;
}

void
herald_log_setting_reset(void)
{
	/*
	 * Request an anchor: if the anchor of a token is older than the change,
	 * the token may be from before or after the change, and does not show
	 * which.
	 */
	if (has_written)
		atomic_store(&herald_control->wants_anchor, 1);
	is_noted = has_written = false;
}
