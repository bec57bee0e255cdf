/*-------------------------------------------------------------------------
 *
 * channel_settings.h
 *	  Which channels are logged: table herald.channel, as this backend keeps it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CHANNEL_SETTINGS_H
#define HERALD_CHANNEL_SETTINGS_H

#include "postgres.h"

/* Columns of table herald.channel. */
enum
{
	HERALD_SETTINGS_NAME = 1,
	HERALD_SETTINGS_LOGGED = 2
};

/*
 * Is any channel logged in this database, as of now?  False in a database without the extension.
 * These functions must be called in a transaction; they may throw, also on a standby.  They read
 * the table only after it has changed.
 */
extern bool herald_settings_any_logged(void);

/*
 * The same, and no other transaction changes a setting until this one has ended.  For a
 * transaction that is about to commit notifications; not on a standby.  May wait for the commit
 * of a transaction that has changed settings, and so must come before anything for which other
 * sessions wait.
 */
extern bool herald_settings_hold(void);

/* Is this channel logged, as of now? */
extern bool herald_channel_is_logged(const char *channel);

/* On a standby: throws if the channel is not logged, since it could not be served.  command: for the message. */
extern void herald_check_channel_here(const char *channel, const char *command);

/* A number that changes, in this backend, when other settings are read than before. */
extern uint64 herald_settings_version(void);

/* Is this setting, a channel or a prefix with an asterisk, one for this channel?  Never fails. */
extern bool herald_setting_matches(const char *pattern, const char *channel);

/* OID of table herald.channel; InvalidOid: there is none. */
extern Oid	herald_settings_table(void);

/* For transactions that change settings: one of them at a time. */
extern void herald_settings_claim(void);

/*
 * Wait for the transactions that are committing under the old settings.  Until this transaction
 * has ended, no other transaction commits notifications.
 */
extern void herald_settings_exclude_senders(void);

#endif							/* HERALD_CHANNEL_SETTINGS_H */
