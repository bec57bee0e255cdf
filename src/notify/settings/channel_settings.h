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

/* The foreign-data wrapper of the extension, and its one server, whose options are the settings. */
#define HERALD_SETTINGS_SERVER		"pg_herald"
#define HERALD_SETTINGS_LOGGED		"logged"
#define HERALD_SETTINGS_UNLOGGED	"unlogged"

/* A setting that has changed: of a channel, or of a prefix that ends with '*'. */
typedef struct HeraldSettingChange
{
	bool		logged;
	char		pattern[NAMEDATALEN + 1];
} HeraldSettingChange;

/*
 * Read the settings, unless this session knows them.  By a statement that notifies, since its
 * commit does not read them.  Never waits: while a catalog is locked, they stay unknown.
 */
extern void herald_channel_settings_read(void);

/*
 * The same, and waits for the catalog's locks.  By a transaction of which pg_herald does not see all channels: it fails
 * if any channel is logged.  Throws what the wait for a lock throws.
 */
extern void herald_channel_settings_await(void);

/*
 * From here to the end of this transaction, one version of the settings is in use: a change of
 * them waits for this transaction, and this one for nothing.  Returns false if no channel is
 * logged.  In the commit, before it is decided what is logged.  Never fails.
 */
extern bool herald_channel_settings_use(void);

/*
 * Is a notification on this channel to be logged: by the settings in use, or, before there are
 * any, by those that the session knows?  True for all channels if these are not up to date: what
 * is logged without need does no harm.  _any: is there any such channel?
 */
extern bool herald_channel_settings_include(const char *channel);
extern bool herald_channel_settings_any(void);

/* The transaction is over: nothing is in use any more, and its change is in force.  Never fails. */
extern void herald_channel_settings_end(void);

/*
 * Is the channel logged, by what is committed?  In a transaction; throws 55P03 while a catalog
 * is locked against reading.
 */
extern bool herald_channel_is_logged(const char *channel);

/*
 * Throw 25006 if this is a standby, and the channel is not logged: it receives no notifications of it.
 * `command` is for the message.
 */
extern void herald_check_channel_here(const char *channel, const char *command);

/*
 * How often this session has found the settings changed.  In a transaction; throws as
 * herald_channel_is_logged().
 */
extern uint64 herald_channel_settings_version(void);

/* Does the pattern of a setting, a channel or a prefix that ends with '*', include the channel? */
extern bool herald_setting_matches(const char *pattern, const char *channel);

/*
 * The effect of what this transaction has changed up to now: a list of HeraldSettingChange, in the
 * current memory context.  May wait for a lock on the catalogs.  Throws 42710 if the wrapper has
 * another server.
 */
extern List *herald_channel_settings_changes(void);

/*
 * Wait until no other transaction changes settings of this database.  To the end of the transaction,
 * or, if there is nothing to change, to _unlock.
 */
extern void herald_channel_settings_lock(void);
extern void herald_channel_settings_unlock(void);

/*
 * Before the commit record of a change, with that lock: from here on all commits of this database
 * log everything; wait until those have ended that use the settings from before.  May throw.
 */
extern void herald_channel_settings_exclude_senders(void);

/* Settings from the text of an option: names of channels, and prefixes.  Throws 22P02. */
extern List *herald_channel_settings_parse(const char *option);

#endif							/* HERALD_CHANNEL_SETTINGS_H */
