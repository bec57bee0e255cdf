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
 * The name of the extension's foreign-data wrapper, which is also the name of the wrapper's only foreign server; and
 * the names of the foreign server's options, whose values are the settings.
 */
#define HERALD_SETTINGS_SERVER		"pg_herald"
#define HERALD_SETTINGS_LOGGED		"logged"
#define HERALD_SETTINGS_UNLOGGED	"unlogged"

/*
 * A change that affects logging.  pattern: a channel, or a prefix followed by '*'.  logged: is the pattern logged after
 * the change?
 */
typedef struct HeraldSettingChange
{
	bool		logged;
	char		pattern[NAMEDATALEN + 1];
} HeraldSettingChange;

/*
 * Read the settings, unless this session's copy is up to date.  Called by a statement that notifies, since the
 * transaction's commit does not read the settings.  Never waits: while a catalog is locked, the copy stays out of date,
 * and commits log all their notifications.
 */
extern void herald_channel_settings_read(void);

/*
 * Do the same as herald_channel_settings_read(), but wait for locks on the catalogs.  Called when the transaction has
 * notified, or is about to notify, on a channel that pg_herald does not know.  If any channel is logged, the caller
 * must fail the transaction, so the copy must be up to date.  Throws what the wait for a lock throws.
 */
extern void herald_channel_settings_await(void);

/*
 * Use one version of the settings from this call to the end of the transaction.  A session that changes the settings
 * later waits for this transaction to end, but this transaction does not wait for a change.  Returns false if no
 * notification need be logged.  Called in the commit, before each decision whether a notification is logged.  Never
 * fails.
 */
extern bool herald_channel_settings_use(void);

/*
 * Must a notification on this channel be logged?  After herald_channel_settings_use(), the version that the transaction
 * uses decides this.  Before that call, the session's copy decides, after an attempt to bring the copy up to date.  If
 * the copy is still out of date, or if a change is being committed, returns true for all channels: to log a
 * notification without need does no harm.  _any: does herald_channel_settings_include() return true for at least one
 * channel?
 */
extern bool herald_channel_settings_include(const char *channel);
extern bool herald_channel_settings_any(void);

/*
 * End the transaction's use of the settings.  If the transaction has called herald_channel_settings_exclude_senders(),
 * make the version even again, and release the lock.  Called when the transaction is over.  Never fails.
 */
extern void herald_channel_settings_end(void);

/*
 * Is the channel logged according to the committed settings?  Called in a transaction.  Throws 55P03 if a catalog
 * cannot be read because it is locked.
 */
extern bool herald_channel_is_logged(const char *channel);

/*
 * Throw 25006 if this is a standby and the channel is not logged, since a standby receives no notifications on such a
 * channel.  command: the name of the command, for the message.
 */
extern void herald_check_channel_here(const char *channel, const char *command);

/*
 * Returns a number that increases each time this session finds other settings than before.  Called in a transaction;
 * throws like herald_channel_is_logged().
 */
extern uint64 herald_channel_settings_version(void);

/* Does this pattern include the channel?  pattern: a channel, or a prefix followed by '*'. */
extern bool herald_setting_matches(const char *pattern, const char *channel);

/*
 * Returns the effect of this transaction's changes so far: a list of HeraldSettingChange, in the current memory
 * context.  Waits for locks on the catalogs.  Throws 42710 if the wrapper has a foreign server with another name.
 */
extern List *herald_channel_settings_changes(void);

/*
 * Lock the settings of this database, after waiting for other transactions that change the settings.  The transaction
 * holds the lock until it ends, or until it calls _unlock because it has nothing to change.
 */
extern void herald_channel_settings_lock(void);
extern void herald_channel_settings_unlock(void);

/*
 * Called before the commit record of a transaction that changes the settings.  Takes the lock of
 * herald_channel_settings_lock(); makes commits of this database log all notifications until this transaction is over;
 * and waits until all commits that use earlier settings have ended.  May throw.
 */
extern void herald_channel_settings_exclude_senders(void);

/*
 * Returns the patterns in the value of an option, as a list of strings; a null in the array becomes an empty string.
 * Throws 22P02 if the value is not the text of an array.
 */
extern List *herald_channel_settings_parse(const char *option);

#endif							/* HERALD_CHANNEL_SETTINGS_H */
