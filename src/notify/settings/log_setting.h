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
 * Remember that this transaction creates, changes or drops a foreign server or a foreign-data wrapper, which may affect
 * the settings.  Throws if the transaction is committing.
 */
extern void herald_log_setting_note(void);

/*
 * _is_noted: has this transaction called herald_log_setting_note()?  _any_change: do the changes of this transaction
 * affect which channels are logged?  _any_change may throw.
 */
extern bool herald_log_setting_is_noted(void);
extern bool herald_log_setting_any_change(void);

/*
 * Called before the commit record.  If this transaction changes which channels are logged, wait until all transactions
 * that are committing with earlier settings have ended, and then write the changes into the WAL.  May throw.
 */
extern void herald_log_setting_write(void);

/*
 * Forget the transaction's changes.  If they were written into the WAL, request an anchor.  Called when the transaction
 * is over.  Never fails.
 */
extern void herald_log_setting_reset(void);

#endif							/* HERALD_LOG_SETTING_H */
