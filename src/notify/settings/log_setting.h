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

/* Record that this transaction creates, changes or drops a foreign server, perhaps the one of the settings. */
extern void herald_log_setting_note(void);

/* Was that recorded?  any_change: has it changed the setting of any channel in effect?  The latter may throw. */
extern bool herald_log_setting_is_noted(void);
extern bool herald_log_setting_any_change(void);

/*
 * Before the commit record: if settings are changed, wait until no other transaction is committing
 * notifications by the old ones, and write the messages.  May throw.
 */
extern void herald_log_setting_write(void);

/* The transaction is over.  Never fails. */
extern void herald_log_setting_reset(void);

#endif							/* HERALD_LOG_SETTING_H */
