/*-------------------------------------------------------------------------
 *
 * subscriptions.h
 *	  The channels that this backend listens to.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SUBSCRIPTIONS_H
#define HERALD_SUBSCRIPTIONS_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Note what LISTEN, UNLISTEN and UNLISTEN * (or DISCARD ALL) asked for; done when
 * the transaction commits.  May throw.
 */
extern void herald_subscriptions_listen(const char *channel);
extern void herald_subscriptions_unlisten(const char *channel);
extern void herald_subscriptions_unlisten_all(void);

/* The current subtransaction was committed, or rolled back. */
extern void herald_subscriptions_subcommit(void);
extern void herald_subscriptions_subabort(void);

/* Does this transaction run UNLISTEN, or LISTEN, as far as it has not been rolled back? */
extern bool herald_subscriptions_any_to_drop(void);
extern bool herald_subscriptions_any_to_add(void);

/*
 * Is what this transaction does with channels so much that the server, which does it
 * once more after our callback, takes long?
 */
extern bool herald_subscriptions_take_long(void);

/*
 * Before the commit: enter the new channels in the channel map.  May throw;
 * herald_subscriptions_abort() then takes them out again.
 */
extern void herald_subscriptions_prepare(void);

/* After the commit, or the abort.  Never fail. */
extern void herald_subscriptions_commit(void);
extern void herald_subscriptions_abort(void);

/*
 * Does this backend listen to that entry's channel, and did it when the entry's
 * batch was dispatched?
 */
extern bool herald_subscriptions_include(const HeraldEntry *entry, HeraldPosition batch);

/* Does this backend listen to the channel, by a committed LISTEN? */
extern bool herald_subscriptions_include_name(const char *channel);

#endif							/* HERALD_SUBSCRIPTIONS_H */
