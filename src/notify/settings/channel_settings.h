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

/*
 * The name of the extension's foreign-data wrapper, which is also the name of the wrapper's only server; and the
 * names of the server's options, which are the settings.
 */
#define HERALD_SETTINGS_SERVER		"pg_herald"
#define HERALD_SETTINGS_LOGGED		"logged"
#define HERALD_SETTINGS_UNLOGGED	"unlogged"

/* A setting that has changed.  pattern: a channel, or a prefix followed by '*'. */
typedef struct HeraldSettingChange
{
	bool		logged;
	char		pattern[NAMEDATALEN + 1];
} HeraldSettingChange;

/*
 * Read the settings, unless this session's copy is up to date.  Called by a statement that notifies, since the
 * transaction's commit does not read the settings.  Never waits: while a catalog is locked, the copy stays out of
 * date.
 */
extern void herald_channel_settings_read(void);

/*
 * Do the same as herald_channel_settings_read(), but wait for locks on the catalogs.  Called when the transaction
 * has notified on a channel that pg_herald does not see: then the transaction fails if any channel is logged.
 * Throws what the wait for a lock throws.
 */
extern void herald_channel_settings_await(void);

/*
 * Use one version of the settings from this call to the end of the transaction.  A change of the settings waits for
 * this transaction, but this transaction does not wait for a change.  Returns false if no channel is logged.  Called
 * in the commit, before each decision whether a notification is logged.  Never fails.
 */
extern bool herald_channel_settings_use(void);

/*
 * Must a notification on this channel be logged?  After herald_channel_settings_use(), the settings that the
 * transaction uses decide this; before that call, the session's copy of the settings decides.  If these settings are
 * not up to date, returns true for all channels, since it does no harm to log a notification without need.  _any:
 * does herald_channel_settings_include() return true for at least one channel?
 */
extern bool herald_channel_settings_include(const char *channel);
extern bool herald_channel_settings_any(void);

/*
 * End the transaction's use of the settings.  If the transaction has called
 * herald_channel_settings_exclude_senders(), also end its change of the settings.  Called when the transaction is
 * over.  Never fails.
 */
extern void herald_channel_settings_end(void);

/*
 * Is the channel logged according to the committed settings?  Called in a transaction; throws 55P03 while a catalog
 * is locked against reading.
 */
extern bool herald_channel_is_logged(const char *channel);

/*
 * Throw 25006 if this is a standby and the channel is not logged, since a standby receives no notifications on such a
 * channel.  command: the name of the command, for the message.
 */
extern void herald_check_channel_here(const char *channel, const char *command);

/*
 * Returns how many times this session has found the settings changed.  Called in a transaction; throws like
 * herald_channel_is_logged().
 */
extern uint64 herald_channel_settings_version(void);

/* Does this pattern include the channel?  pattern: a channel, or a prefix followed by '*'. */
extern bool herald_setting_matches(const char *pattern, const char *channel);

/*
 * Returns the effect of this transaction's changes so far: a list of HeraldSettingChange, in the current memory
 * context.  May wait for locks on the catalogs.  Throws 42710 if the wrapper has a server with another name.
 */
extern List *herald_channel_settings_changes(void);

/*
 * Lock the settings of this database, after waiting for other transactions that change the settings.  The transaction
 * holds the lock to its end, or calls _unlock if it has nothing to change.
 */
extern void herald_channel_settings_lock(void);
extern void herald_channel_settings_unlock(void);

/*
 * Called before the commit record of a transaction that changes the settings.  Takes the lock of
 * herald_channel_settings_lock(); makes commits of this database log everything until this transaction is over; and
 * waits until all commits that use earlier settings have ended.  May throw.
 */
extern void herald_channel_settings_exclude_senders(void);

/* Returns the names of channels and prefixes in the text of an option.  Throws 22P02 if the text is no array. */
extern List *herald_channel_settings_parse(const char *option);

#endif							/* HERALD_CHANNEL_SETTINGS_H */
