/*-------------------------------------------------------------------------
 *
 * log_setting.h
 *	  Changes of channel settings, for readers of the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LOG_SETTING_H
#define HERALD_LOG_SETTING_H

#include "postgres.h"

/*
 * This transaction has set a channel, or a prefix that ends with '*', of at most NAMEDATALEN
 * bytes; a setting that was removed counts as not logged.  Written to the WAL before the commit.
 */
extern void herald_log_setting(const char *pattern, bool logged);

/* Has this transaction changed settings? */
extern bool herald_log_setting_any(void);

/*
 * Before the commit record: wait until no other transaction is committing notifications, and
 * write the messages.  May throw.
 */
extern void herald_log_setting_write(void);

/* The end of a subtransaction, and of the transaction. */
extern void herald_log_setting_subcommit(void);
extern void herald_log_setting_subabort(void);
extern void herald_log_setting_reset(void);

#endif							/* HERALD_LOG_SETTING_H */
