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
 * Note that this transaction creates, changes or drops a foreign server or a foreign-data wrapper, which may be the
 * server or the wrapper of the settings.  Throws if the transaction is committing.
 */
extern void herald_log_setting_note(void);

/*
 * _is_noted: was herald_log_setting_note() called in this transaction?  _any_change: do the changes of this
 * transaction affect which channels are logged?  _any_change may throw.
 */
extern bool herald_log_setting_is_noted(void);
extern bool herald_log_setting_any_change(void);

/*
 * Called before the commit record.  If this transaction changes settings, wait until all transactions that are
 * committing with the old settings have ended, and then write the changes into the WAL.  May throw.
 */
extern void herald_log_setting_write(void);

/*
 * Forget the transaction's changes; if they were written, request an anchor.  Called when the transaction is over.
 * Never fails.
 */
extern void herald_log_setting_reset(void);

#endif							/* HERALD_LOG_SETTING_H */
