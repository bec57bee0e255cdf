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

#include "core/queue_reader.h"
#include "notify/dispatch/channel_map.h"
#include "notify/listener/token.h"

/*
 * Note what LISTEN, UNLISTEN and UNLISTEN * (or DISCARD ALL) asked for; done when
 * the transaction commits.  May throw.
 */
extern void herald_subscriptions_listen(const char *channel);
extern void herald_subscriptions_unlisten(const char *channel);
extern void herald_subscriptions_unlisten_all(void);

/*
 * Is LISTEN of this channel the last thing that was noted?  What LISTEN does is up to other
 * modules' hooks as well: some answer it themselves.
 */
extern bool herald_subscriptions_noted_last(const char *channel);

/*
 * When that is so: the channel is to begin at a place that a token
 * named.  False: something after it is gone, and the channel begins at the commit.
 * From now on it is kept for this session.  May throw.
 */
extern bool herald_subscriptions_resume(HeraldToken token);

/*
 * Does this transaction keep something for a channel that is to resume?  Then the
 * session's word stays where it is; what is sent to the client meanwhile, up to
 * a position, is remembered here.
 */
extern bool herald_subscriptions_are_held(void);
extern void herald_subscriptions_pass(HeraldPosition position);

/* The current subtransaction was committed, or rolled back. */
extern void herald_subscriptions_subcommit(void);
extern void herald_subscriptions_subabort(void);

/* Does this transaction run UNLISTEN, as far as it has not been rolled back? */
extern bool herald_subscriptions_any_to_drop(void);

/* The same for LISTEN, in a session that listens to nothing yet. */
extern bool herald_subscriptions_are_first(void);

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

/*
 * When the commit can be seen: of what was sent past our queue before this session has been
 * registered with the server, a channel that it resumes may have missed something.  Has all of that
 * been counted (see bypass.h)?  If not, the session looks later.  Never fails.
 */
extern void herald_subscriptions_look_for_missed(bool is_counted);

/* After the commit, or the abort.  Never fail. */
extern void herald_subscriptions_commit(void);
extern void herald_subscriptions_abort(void);

typedef struct HeraldChannelName
{
	uint32		hash;
	char		name[NAMEDATALEN];
} HeraldChannelName;

/*
 * A session that does not listen is marked and signalled for channels, as if it did.
 * On success the session is a listener, with an idle word, until
 * herald_subscriptions_unwatch(), which has to follow whatever happens, and never
 * fails; the end of the process sees to it itself.  May throw.
 */
extern void herald_subscriptions_watch(const HeraldChannelName *channels, int count);
extern void herald_subscriptions_unwatch(void);

/*
 * Does this backend listen to that entry's channel, and is it to have what is sent
 * in this batch?
 */
extern bool herald_subscriptions_include(const HeraldEntry *entry, HeraldPosition batch);

/*
 * The counters of a message's channel, valid until the transaction ends; NULL: this
 * backend is not to have the message.
 */
extern HeraldChannelCounters *herald_subscriptions_admit(const HeraldMessage *message);

/* Does this backend listen to the channel, by a committed LISTEN? */
extern bool herald_subscriptions_include_name(const char *channel);

#endif							/* HERALD_SUBSCRIPTIONS_H */
