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
 * server's own way, at the end of the transaction if that is by a setting.
 */
extern void herald_notify(const char *channel, const char *payload);

/*
 * This transaction sends something by the server's own way, or may do so.  The
 * server removes duplicates among what it sends, and keeps its order; so all that the
 * transaction sends goes the server's way, what it has sent before at once.  May throw.
 */
extern void herald_notify_go_native(void);

/* Before the commit: all that this transaction sends goes the server's own way, if it can carry that. */
extern void herald_notify_end_natively(void);

/*
 * Before the commit: hand the server what it is to send and does not have yet, or not
 * any more, after a rollback of the subtransaction in which it was handed over.  May throw.
 */
extern void herald_notify_hand_over(void);

/* The transaction is over.  Never fails. */
extern void herald_notify_end(void);

/* Is this the length of a channel's name?  Throws 22023 if not. */
extern void herald_check_channel(size_t length);

#endif							/* HERALD_NOTIFY_H */
