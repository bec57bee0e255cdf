/*-------------------------------------------------------------------------
 *
 * channel_settings.h
 *	  Which channels of this database are logged.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CHANNEL_SETTINGS_H
#define HERALD_CHANNEL_SETTINGS_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* The name of the extension's foreign-data wrapper and of its only server, and the server's options: the settings. */
#define HERALD_SETTINGS_SERVER		"pg_herald"
#define HERALD_SETTINGS_LOGGED		"logged"
#define HERALD_SETTINGS_UNLOGGED	"unlogged"

/* The changed setting of a channel, or of a prefix that ends with '*'. */
typedef struct HeraldSettingChange
{
	bool		logged;
	char		pattern[NAMEDATALEN + 1];
} HeraldSettingChange;

/*
 * Read the settings, unless this session knows them.  Called by a statement that notifies, since its
 * commit does not read the settings.  Never waits: while a catalog is locked, the settings stay unknown.
 */
extern void herald_channel_settings_read(void);

/*
 * The same, but waits for locks on the catalogs.  Called for a notification whose channel pg_herald does not see, and
 * which fails if any channel is logged.  Throws what the wait for a lock throws.
 */
extern void herald_channel_settings_await(void);

/*
 * Use one version of the settings from here to the end of this transaction.  A change of the settings
 * waits for this transaction, but this transaction does not wait.  Returns false if no channel is logged.
 * Called in the commit, before each decision on what is logged.  Never fails.
 */
extern bool herald_channel_settings_use(void);

/*
 * Must a notification on this channel be logged?  The settings in use decide, or, if none are in use yet, the
 * settings that the session knows.  True for all channels if these settings are not up to date, since it does
 * no harm to log a notification without need.  _any: must notifications on any channel be logged?
 */
extern bool herald_channel_settings_include(const char *channel);
extern bool herald_channel_settings_any(void);

/* The transaction is over: it uses no settings any more, and its change is in force.  Never fails. */
extern void herald_channel_settings_end(void);

/*
 * Is the channel logged, by the committed settings?  Called in a transaction; throws 55P03 while a
 * catalog is locked against reading.
 */
extern bool herald_channel_is_logged(const char *channel);

/*
 * Throw 25006 if this is a standby and the channel is not logged, since a standby receives no notifications
 * on such a channel.  `command` is for the message.
 */
extern void herald_check_channel_here(const char *channel, const char *command);

/*
 * Returns how often this session has found the settings changed.  Called in a transaction; throws like
 * herald_channel_is_logged().
 */
extern uint64 herald_channel_settings_version(void);

/* Does this pattern include the channel?  pattern: a channel, or a prefix that ends with '*'. */
extern bool herald_setting_matches(const char *pattern, const char *channel);

/*
 * Returns the effect of this transaction's changes so far: a list of HeraldSettingChange, in the current
 * memory context.  May wait for a lock on the catalogs.  Throws 42710 if the wrapper has another server.
 */
extern List *herald_channel_settings_changes(void);

/*
 * Lock the settings of this database; wait until no other transaction changes them.  The lock lasts to the
 * end of the transaction, or to _unlock if there is nothing to change.
 */
extern void herald_channel_settings_lock(void);
extern void herald_channel_settings_unlock(void);

/*
 * Called before the commit record of a change.  Takes the lock of herald_channel_settings_lock(), makes all commits of
 * this database log everything from here on, and waits for commits that use the earlier settings to end.  May throw.
 */
extern void herald_channel_settings_exclude_senders(void);

/* Returns the names of channels and prefixes in the text of an option.  Throws 22P02. */
extern List *herald_channel_settings_parse(const char *option);

#endif							/* HERALD_CHANNEL_SETTINGS_H */
