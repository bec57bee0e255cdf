/*-------------------------------------------------------------------------
 *
 * log_setting.h
 *	  Writes changes of channel settings into the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LOG_SETTING_H
#define HERALD_LOG_SETTING_H

#include "postgres.h"

/*
 * Note that this transaction creates, changes or drops a foreign server or a foreign-data wrapper, perhaps that of the
 * settings.  Throws if the transaction is committing.
 */
extern void herald_log_setting_note(void);

/* Was herald_log_setting_note() called?  _any_change: has this transaction changed which channels are logged?  May throw. */
extern bool herald_log_setting_is_noted(void);
extern bool herald_log_setting_any_change(void);

/*
 * Called before the commit record.  If this transaction changes settings, wait until no other transaction is
 * committing notifications by the old settings, and write the messages.  May throw.
 */
extern void herald_log_setting_write(void);

/* The transaction is over.  Never fails. */
extern void herald_log_setting_reset(void);

#endif							/* HERALD_LOG_SETTING_H */
