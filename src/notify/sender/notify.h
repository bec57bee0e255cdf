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
 * the server's own queue: at the end of the transaction if a setting is the reason.
 */
extern void herald_notify(const char *channel, const char *payload);

/*
 * This transaction sends a notification through the server's own queue, or may do so.  The
 * server removes duplicates among its notifications and keeps their order.  So all
 * notifications of the transaction must go through the server's queue; those sent so far are
 * handed over at once.  May throw.
 */
extern void herald_notify_go_native(void);

/* The same, for a notification of which pg_herald will see neither the channel nor the payload. */
extern void herald_notify_go_native_unseen(void);

/*
 * Before the commit, before any notification is handed over: does the server have notifications
 * of this transaction that pg_herald has not seen?  may_ask: the transaction has no LISTEN or
 * UNLISTEN, which the server does not distinguish from them.  May throw.
 */
extern bool herald_notify_has_unseen(bool may_ask);

/* Then readers of the WAL learn that there are some, if any channel is logged.  May throw. */
extern void herald_notify_log_unseen(void);

/*
 * Before the commit: send all notifications of this transaction through the server's own
 * queue, if they fit there.
 */
extern void herald_notify_send_natively_at_end(void);

/*
 * Before the commit: hand the server the notifications that it must send and does not have
 * yet, or no longer has, after a rollback of the subtransaction in which they were handed
 * over.  May throw.
 */
extern void herald_notify_hand_over(void);

/* The transaction is over.  Never fails. */
extern void herald_notify_reset(void);

/* Is this a valid length of a channel name?  Throws 22023 if not. */
extern void herald_check_channel(size_t length);

#endif							/* HERALD_NOTIFY_H */
