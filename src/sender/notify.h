/*-------------------------------------------------------------------------
 *
 * notify.h
 *	  NOTIFY, from the statement to the pending notifications.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_NOTIFY_H
#define HERALD_NOTIFY_H

#include "postgres.h"

/*
 * Notify a channel when the transaction commits.  payload may be NULL for an
 * empty one.  Inside a transaction.  Throws what the server's NOTIFY throws.
 * Where pg_herald is off (settings, database), it goes the server's own way.
 */
extern void herald_notify(const char *channel, const char *payload);

#endif							/* HERALD_NOTIFY_H */
