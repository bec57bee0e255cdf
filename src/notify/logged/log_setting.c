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

#include "utils/memutils.h"

#include "base/involvement.h"
#include "base/shared.h"
#include "base/subtransaction_levels.h"
#include "core/stop_point.h"
#include "core/wal_message.h"
#include "notify/channels/channel_settings.h"
#include "notify/logged/log_setting.h"
#include "notify/logged/wal_origin.h"

typedef struct Change
{
	char		pattern[NAMEDATALEN + 1];
	bool		logged;
} Change;

/* Of this transaction, in order. */
static Change *changes;			/* in TopTransactionContext */
static uint64 changes_used;
static uint64 changes_room;
static HeraldLevels levels;
static bool has_written;		/* they are in the WAL */


void
herald_log_setting(const char *pattern, bool logged)
{
	if (changes_used == changes_room)
	{
		uint64		room = Max(8, changes_room * 2);

		if (changes == NULL)
			changes = MemoryContextAlloc(TopTransactionContext, room * sizeof(Change));
		else
			changes = repalloc_huge(changes, room * sizeof(Change));
		changes_room = room;
	}
	herald_is_involved = true;
	herald_levels_mark(&levels, changes_used);
	strlcpy(changes[changes_used].pattern, pattern, sizeof(changes->pattern));
	changes[changes_used++].logged = logged;

	/* Another module's callback makes the change, after ours. */
	if (herald_is_committing)
		herald_log_setting_write();
}

bool
herald_log_setting_any(void)
{
	return changes_used > 0;
}

void
herald_log_setting_write(void)
{
	char		text[HERALD_WAL_SETTING_MAX(NAMEDATALEN)];

	if (changes_used == 0)
		return;

	herald_settings_exclude_senders();
	HERALD_STOP_POINT("settings-alone");
	for (uint64 i = 0; i < changes_used; i++)
	{
		size_t		length = herald_wal_write_setting(text, herald_control->server_run, changes[i].pattern,
													  strlen(changes[i].pattern), changes[i].logged);

		(void) herald_wal_origin_log(text, length, true);
	}
	changes_used = 0;
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
	changes_used = herald_levels_subabort(&levels, changes_used);
}

void
herald_log_setting_reset(void)
{
	herald_levels_reset(&levels);
	changes = NULL;
	changes_used = changes_room = 0;

	/* A token with an older anchor could not tell on which side of the change it is. */
	if (has_written)
		atomic_store(&herald_control->wants_anchor, 1);
	has_written = false;
}
