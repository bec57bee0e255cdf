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
 * Notify a channel when the transaction commits.  payload may be NULL for an empty one.
 * Inside a transaction.  Throws the errors of the server's NOTIFY.  If pg_herald is off (by a
 * setting, in this database, or because the queue is damaged), the notification goes through
 * the server's own queue: at the end of the transaction if a setting is the reason.  What is on a
 * logged channel goes through our queue, or fails here.
 */
extern void herald_notify(const char *channel, const char *payload);

/*
 * This transaction sends a notification through the server's own queue.  The server removes
 * duplicates among its notifications and keeps their order.  So all notifications of the
 * transaction must go through the server's queue; those sent so far are handed over at once.
 * May throw.
 */
extern void herald_notify_go_native(void);

/* The same, for a notification of which pg_herald will see neither the channel nor the payload. */
extern void herald_notify_go_native_unseen(void);

/*
 * Before the commit: if the pending notifications have to go through the server's own queue, hand
 * them over.  would_delay_others: in our queue, later batches would wait for what the server still has
 * to do; so only what the other queue cannot have goes there.  Throws if the server's queue has some already, and ours
 * must have others.
 */
extern void herald_notify_choose_queue(bool would_delay_others);

/* The transaction is over.  Never fails. */
extern void herald_notify_reset(void);

/* Is this a valid length of a channel name?  Throws 22023 if not. */
extern void herald_check_channel(size_t length);

#endif							/* HERALD_NOTIFY_H */
