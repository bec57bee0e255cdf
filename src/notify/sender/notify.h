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
 * Where pg_herald is off (settings, database, a damaged queue), it goes the
 * server's own way.
 */
extern void herald_notify(const char *channel, const char *payload);

/*
 * This transaction sends something by the server's own way, or may do so.  The
 * server removes duplicates among what it sends; so that there are none between
 * the two ways, all that the transaction sends goes the server's way.
 */
extern void herald_notify_note_native(void);

/* Before the commit: hand the server what this transaction has sent by ours.  May throw. */
extern void herald_notify_hand_over(void);

/* The transaction is over.  Never fails. */
extern void herald_notify_end(void);

#endif							/* HERALD_NOTIFY_H */
