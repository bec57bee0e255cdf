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

#include "base/channel_hash.h"
#include "core/queue_reader.h"
#include "notify/channels/channel_map.h"

/*
 * Note a LISTEN, UNLISTEN or UNLISTEN * (or DISCARD ALL), which takes effect when the
 * transaction commits.  May throw.
 */
extern void herald_subscriptions_listen(const char *channel);
extern void herald_subscriptions_unlisten(const char *channel);
extern void herald_subscriptions_unlisten_all(void);

/*
 * Will this transaction listen to the channel?  Another module's hook may handle LISTEN itself,
 * without passing it on.
 */
extern bool herald_subscriptions_any_to_add(const char *channel);

/*
 * For channels that resume, in their transaction.  join: the session becomes a listener now, so that
 * messages can be kept for it.  note_held: they are.  May throw; the latter never does.
 */
extern void herald_subscriptions_join(void);
extern void herald_subscriptions_note_held(void);

/*
 * admit_past: the counters of a notification's channel; NULL: it is not for this session.
 * all_have_past: do all channels of this session begin with the history?  Then a position within it
 * is one for all of them.
 */
extern HeraldChannelCounters *herald_subscriptions_admit_past(const HeraldEntry *entry);
extern bool herald_subscriptions_all_have_past(void);

/* Do any channels begin with a history?  end: it has been delivered. */
extern bool herald_subscriptions_any_past(void);
extern void herald_subscriptions_end_past(void);

/*
 * Does this transaction hold messages for a channel that will resume?  Then the session's word
 * keeps its position.  pass: the other channels have received everything up to this position.
 */
extern bool herald_subscriptions_are_held(void);
extern void herald_subscriptions_pass(HeraldPosition position);

/* The current subtransaction was committed, or rolled back. */
extern void herald_subscriptions_subcommit(void);
extern void herald_subscriptions_subabort(void);

/* Does this transaction run UNLISTEN in a part that has not been rolled back? */
extern bool herald_subscriptions_any_to_drop(void);

/* The same for LISTEN, in a session that has no channels yet. */
extern bool herald_subscriptions_are_first(void);

/*
 * Before the commit: enter the new channels in the channel map.  May throw;
 * herald_subscriptions_abort() then removes them again.
 */
extern void herald_subscriptions_prepare(void);

/*
 * When the commit is visible: a channel that resumes may have missed notifications that
 * bypassed our queue before this session was registered with the server.  is_counted: all such
 * transactions have been counted (see bypass.h); if not, the session checks later.  Never
 * fails.
 */
extern void herald_subscriptions_look_for_missed(bool is_counted);

/* After the commit, or the abort.  Never fail. */
extern void herald_subscriptions_commit(void);
extern void herald_subscriptions_abort(void);

/*
 * Let a session that does not listen be marked and signalled for channels, as if it did.  On
 * success the session is a listener, with an idle word, until herald_subscriptions_unwatch(),
 * which must follow in any case, also after an error, and never fails; process exit does it by
 * itself.  May throw.
 */
extern void herald_subscriptions_watch(const HeraldChannelName *channels, int count);
extern void herald_subscriptions_unwatch(void);

/* Does this backend listen to the entry's channel, from this batch on or an earlier one? */
extern bool herald_subscriptions_include(const HeraldEntry *entry, HeraldPosition batch);

/*
 * The counters of a message's channel, valid until the transaction ends; NULL: this backend
 * must not receive the message.
 */
extern HeraldChannelCounters *herald_subscriptions_admit(const HeraldMessage *message);

/* The counters of a channel to which this backend listens, by a committed LISTEN; NULL: it does not. */
extern HeraldChannelCounters *herald_subscriptions_counters(const char *channel);

#endif							/* HERALD_SUBSCRIPTIONS_H */
