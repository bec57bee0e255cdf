/*-------------------------------------------------------------------------
 *
 * subscriptions.c
 *	  The channels that this backend listens to.
 *
 * A local hash has every channel with the position from which this backend receives its
 * messages.  In the shared channel map, each of these channels lists the backend.
 *
 * LISTEN and UNLISTEN take effect when their transaction commits.  Their net effect is
 * computed before the commit, where an error is still possible.  New channels are entered in
 * the map, where a dispatcher finds them from then on, and then the dispatched [W1]
 * position is taken as their start.  Everything dispatched later finds them in the map.  After
 * the commit only removals are left, which cannot fail.
 *
 * A channel can also begin at an older place.  Then the session's word moves back there at
 * once, so that the messages sent since are kept.  The starts of the other channels are set to
 * what they have received.  After the commit the session reads from there to the end, like any
 * other laggard.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "base/involvement.h"
#include "base/own_channels.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/channels/quota.h"
#include "notify/listener/actions.h"
#include "notify/listener/server_steps.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/bypass.h"
#include "notify/relay/relay.h"
#include "notify/settings/channel_settings.h"

typedef struct Subscription
{
	char		channel[NAMEDATALEN];	/* the key */
	uint32		channel_hash;
	bool		is_active;		/* by a committed LISTEN */
	bool		is_wanted;		/* after this transaction */
	bool		is_entered;		/* in the channel map */
	HeraldChannelCounters *counters;	/* in the channel map */
	bool		is_touched;		/* is in `touched` */
	HeraldPosition start;		/* this backend receives the messages from
								 * here on */
	HeraldPosition next_start;	/* the same after this transaction */
	bool		resumes;		/* next_start is an older position */
	uint32		bypasses;		/* number of bypasses in the token, or in the
								 * cut if it resumes by the WAL */
	bool		was_logged;		/* the channel, when it resumed */
	bool		has_past;		/* the history comes before `start` */
	bool		next_has_past;	/* the same after this transaction */
} Subscription;

/* In TopMemoryContext; NULL before the first LISTEN. */
static HTAB *subscriptions;

/* The last one found: consecutive messages are often of the same channel. */
static Subscription *found_last;

/* State of this transaction, in its memory context. */
static struct
{
	/*
	 * Subscriptions that its actions concern; set by
	 * herald_subscriptions_prepare().
	 */
	Subscription **touched;
	int			touched_used;
	int			touched_size;

	bool		has_joined;		/* the session has joined, perhaps without any
								 * channel */
	bool		is_held;		/* see herald_subscriptions_are_held() */
}			transaction;

static Subscription *find_active(const HeraldEntry *entry);
static void add_action(HeraldActionKind kind, const char *channel);
static void apply_to_wishes(const HeraldAction *action);
static Subscription *enter(const char *channel);
static void enter_in_map(Subscription *subscription);
static uint32 count_new(void);
static void touch(Subscription *subscription);
static void reserve_touched(void);
static Subscription *find(const char *channel, size_t length, HASHACTION action, bool *found);
static void drop(Subscription *subscription);
static void finish(void);
static void join(void);
static void leave_at_exit(int code, Datum arg);
static void leave_all(void);


void
herald_subscriptions_listen(const char *channel)
{
	add_action(HERALD_ACTION_LISTEN, channel);
}

void
herald_subscriptions_unlisten(const char *channel)
{
	add_action(HERALD_ACTION_UNLISTEN, channel);
}

void
herald_subscriptions_unlisten_all(void)
{
	add_action(HERALD_ACTION_UNLISTEN_ALL, "");
}

bool
herald_subscriptions_any_to_add(const char *channel)
{
	return herald_actions_find_listen(channel) != NULL;
}

void
herald_subscriptions_join(void)
{
	join();
	transaction.has_joined = true;
	herald_is_involved = true;
	herald_session_statement();
}

void
herald_subscriptions_note_held(void)
{
	transaction.is_held = true;
}

HeraldChannelCounters *
herald_subscriptions_admit_past(const HeraldEntry *entry)
{
	Subscription *subscription = find_active(entry);

	return subscription != NULL && subscription->has_past ? subscription->counters : NULL;
}

bool
herald_subscriptions_any_past(void)
{
	HASH_SEQ_STATUS scan;
	Subscription *subscription;

	if (subscriptions == NULL)
		return false;
	hash_seq_init(&scan, subscriptions);
	while ((subscription = hash_seq_search(&scan)) != NULL)
	{
		if (subscription->has_past)
		{
			hash_seq_term(&scan);
			return true;
		}
	}
	return false;
}

void
herald_subscriptions_end_past(void)
{
	HASH_SEQ_STATUS scan;
	Subscription *subscription;

	if (subscriptions == NULL)
		return;
	hash_seq_init(&scan, subscriptions);
	while ((subscription = hash_seq_search(&scan)) != NULL)
		subscription->has_past = false;
}

bool
herald_subscriptions_all_have_past(void)
{
	HASH_SEQ_STATUS scan;
	Subscription *subscription;

	hash_seq_init(&scan, subscriptions);
	while ((subscription = hash_seq_search(&scan)) != NULL)
	{
		if (!subscription->has_past && !herald_own_channel(subscription->channel))
		{
			hash_seq_term(&scan);
			return false;
		}
	}
	return true;
}

void
herald_subscriptions_watch(const HeraldChannelName *channels, int count)
{
	Assert(!herald_session_is_listener());
	join();
	herald_channels_attach();
	herald_quota_begin(count);
	for (int i = 0; i < count; i++)
	{
		Subscription *subscription = enter(channels[i].name);

		CHECK_FOR_INTERRUPTS();
		if (!subscription->is_entered)
			enter_in_map(subscription);
	}
	herald_quota_end();
	herald_session_set_channels(hash_get_num_entries(subscriptions));
}

/* Channels of a LISTEN in this transaction are not entered before its end. */
void
herald_subscriptions_unwatch(void)
{
	herald_quota_end();
	leave_all();
	herald_session_leave();
}

bool
herald_subscriptions_are_held(void)
{
	return transaction.is_held;
}

void
herald_subscriptions_pass(HeraldPosition position)
{
	HASH_SEQ_STATUS scan;
	Subscription *subscription;

	if (subscriptions == NULL)
		return;
	hash_seq_init(&scan, subscriptions);
	while ((subscription = hash_seq_search(&scan)) != NULL)
		subscription->start = Max(subscription->start, position);
}

void
herald_subscriptions_subcommit(void)
{
	herald_actions_subcommit();
}

void
herald_subscriptions_subabort(void)
{
	herald_actions_subabort();
}

bool
herald_subscriptions_any_to_drop(void)
{
	return herald_actions_any(false);
}

bool
herald_subscriptions_are_first(void)
{
	return herald_actions_any(true) && (subscriptions == NULL || hash_get_num_entries(subscriptions) == 0);
}

void
herald_subscriptions_prepare(void)
{
	HeraldPosition start;
	bool		entered = false;

	if (herald_actions_count() == 0)
		return;

	/* Actions before the last UNLISTEN * have no effect. */
	for (int i = herald_actions_last_unlisten_all(); i < herald_actions_count(); i++)
	{
		CHECK_FOR_INTERRUPTS();
		apply_to_wishes(herald_actions_get(i));
	}

	for (int i = 0; i < transaction.touched_used; i++)
	{
		Subscription *subscription = transaction.touched[i];

		if (!subscription->is_wanted || subscription->is_entered)
			continue;
		if (!entered)
		{
			herald_channels_attach();
			join();
			herald_quota_begin(count_new());
			entered = true;
			HERALD_STOP_POINT("listen-joined");
		}
		enter_in_map(subscription);
	}
	if (!entered)
		return;

	herald_quota_end();
	HERALD_STOP_POINT("listen-entered");

	/*
	 * [W1] after the entries are in the map: pairs with publish_stretch() of
	 * sequencer.c
	 */
	start = atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst);
	for (int i = 0; i < transaction.touched_used; i++)
	{
		Subscription *subscription = transaction.touched[i];

		if (!subscription->is_active && !subscription->resumes)
			subscription->next_start = start;
	}

	/*
	 * [X4] The relay notifies of later gaps, and changes of settings, behind
	 * this start; it has met earlier ones before it could find these entries.
	 */
	herald_relay_await_evidence();
	for (int i = 0; i < transaction.touched_used; i++)
	{
		const Subscription *subscription = transaction.touched[i];

		if (subscription->is_wanted && !subscription->is_active && !herald_own_channel(subscription->channel))
			herald_check_channel_here(subscription->channel, "LISTEN");
	}
}

void
herald_subscriptions_look_for_missed(bool is_counted)
{
	HeraldDelivery *owed = herald_session_owed();

	for (int i = 0; i < transaction.touched_used; i++)
	{
		const Subscription *subscription = transaction.touched[i];
		HeraldChannelSets set;
		uint32		now;

		if (!subscription->is_wanted || !subscription->resumes)
			continue;

		/*
		 * Load this first: transactions counted up to it are found here, and
		 * later ones have higher numbers.
		 */
		now = herald_bypass_count();
		set = herald_bypass_sets(herald_channel_set(subscription->channel_hash), subscription->was_logged,
								 subscription->next_start);
		if (herald_bypass_since(subscription->bypasses, set) ||
			!herald_relay_covers(subscription->next_start, true))
			owed->has_missed = true;
		else if (!is_counted)
			herald_delivery_look_for_missed(owed, now, set);
	}
}

void
herald_subscriptions_commit(void)
{
	for (int i = 0; i < transaction.touched_used; i++)
	{
		Subscription *subscription = transaction.touched[i];

		subscription->is_touched = false;
		if (subscription->is_wanted)
		{
			if (subscription->resumes || !subscription->is_active)
			{
				subscription->start = subscription->next_start;
				subscription->has_past = subscription->next_has_past;
			}
			if (subscription->has_past)
				herald_session_owed()->has_past = true;
			if (!subscription->is_active && strcmp(subscription->channel, HERALD_POSITION_CHANNEL) == 0)
				herald_session_owed()->sends_position = true;
			subscription->resumes = false;
			subscription->next_has_past = false;
			subscription->is_active = true;
		}
		else
			drop(subscription);
	}
	finish();
}

void
herald_subscriptions_abort(void)
{
	for (int i = 0; i < transaction.touched_used; i++)
	{
		Subscription *subscription = transaction.touched[i];

		subscription->is_touched = false;
		subscription->resumes = false;
		subscription->next_has_past = false;
		if (subscription->is_active)
			subscription->is_wanted = true;
		else
			drop(subscription);
	}
	finish();
}

bool
herald_subscriptions_include(const HeraldEntry *entry, HeraldPosition batch)
{
	Subscription *subscription = find_active(entry);

	return subscription != NULL && subscription->start <= batch;
}

HeraldChannelCounters *
herald_subscriptions_admit(const HeraldMessage *message)
{
	Subscription *subscription = find_active(message->entry);

	if (subscription == NULL || message->batch < subscription->start)
		return NULL;
	return subscription->counters;
}

HeraldChannelCounters *
herald_subscriptions_counters(const char *channel)
{
	Subscription *subscription = find(channel, strlen(channel), HASH_FIND, NULL);

	return subscription != NULL && subscription->is_active ? subscription->counters : NULL;
}

/* The active subscription to the entry's channel; NULL: there is none. */
static Subscription *
find_active(const HeraldEntry *entry)
{
	const char *channel = herald_entry_channel(entry);
	Subscription *subscription = found_last;

	if (subscriptions == NULL || entry->channel_length >= NAMEDATALEN)
		return NULL;
	if (subscription == NULL || subscription->channel_hash != entry->channel_hash ||
		memcmp(subscription->channel, channel, entry->channel_length + 1) != 0)
		subscription = hash_search_with_hash_value(subscriptions, channel,
												   entry->channel_hash, HASH_FIND, NULL);
	if (subscription != NULL)
		found_last = subscription;
	return subscription != NULL && subscription->is_active ? subscription : NULL;
}

static void
add_action(HeraldActionKind kind, const char *channel)
{
	uint64		channels = subscriptions == NULL ? 0 : hash_get_num_entries(subscriptions);

	herald_is_involved = true;	/* so that the end of the transaction resets
								 * the steps */
	if (kind == HERALD_ACTION_UNLISTEN_ALL)
		herald_server_steps_add_all(channels);
	else
		herald_server_steps_add(kind == HERALD_ACTION_LISTEN, channels);

	/* A session without channels has nothing to unlisten. */
	if (kind != HERALD_ACTION_LISTEN && herald_actions_count() == 0 && channels == 0)
		return;

	herald_actions_add(kind, channel);
}

/* Apply one action to the wanted state. */
static void
apply_to_wishes(const HeraldAction *action)
{
	Subscription *subscription;
	HASH_SEQ_STATUS scan;

	switch (action->kind)
	{
		case HERALD_ACTION_LISTEN:
			reserve_touched();
			subscription = enter(action->channel);
			touch(subscription);
			subscription->is_wanted = true;
			if (action->after != 0)
			{
				subscription->next_start = action->after;
				subscription->next_has_past = action->has_past;
				subscription->bypasses = action->bypasses;
				subscription->was_logged = action->logged;
				subscription->resumes = true;
			}
			break;

		case HERALD_ACTION_UNLISTEN:
			subscription = subscriptions == NULL ? NULL :
				find(action->channel, strlen(action->channel), HASH_FIND, NULL);
			if (subscription)
			{
				touch(subscription);
				subscription->is_wanted = subscription->resumes = subscription->next_has_past = false;
			}
			break;

		case HERALD_ACTION_UNLISTEN_ALL:
			if (subscriptions == NULL)
				break;
			hash_seq_init(&scan, subscriptions);
			while ((subscription = hash_seq_search(&scan)) != NULL)
			{
				touch(subscription);
				subscription->is_wanted = subscription->resumes = subscription->next_has_past = false;
			}
			break;
	}
}

/* Find the subscription, or create one that is neither active nor in the map. */
static Subscription *
enter(const char *channel)
{
	bool		found;
	Subscription *subscription = find(channel, strlen(channel), HASH_ENTER, &found);

	if (found)
		return subscription;
	memset((char *) subscription + sizeof(subscription->channel), 0,
		   sizeof(*subscription) - sizeof(subscription->channel));
	subscription->channel_hash = herald_channel_hash(channel, strlen(channel));
	return subscription;
}

/* May throw. */
static void
enter_in_map(Subscription *subscription)
{
	herald_quota_take_one();
	subscription->counters = herald_channels_add(MyDatabaseId, subscription->channel,
												 subscription->channel_hash,
												 herald_shared_my_slot());
	subscription->is_entered = true;
}

/* The number of channels that must be entered in the map. */
static uint32
count_new(void)
{
	uint32		count = 0;

	for (int i = 0; i < transaction.touched_used; i++)
		count += transaction.touched[i]->is_wanted && !transaction.touched[i]->is_entered;
	return count;
}

/* Remember that this transaction concerns the subscription. */
static void
touch(Subscription *subscription)
{
	if (subscription->is_touched)
		return;
	reserve_touched();
	transaction.touched[transaction.touched_used++] = subscription;
	subscription->is_touched = true;
}

/*
 * Make room for one more.  Before a subscription is created, which would be lost if this
 * failed later.
 */
static void
reserve_touched(void)
{
	int			size = Max(8, transaction.touched_size * 2);

	if (transaction.touched_used < transaction.touched_size)
		return;
	if (transaction.touched == NULL)
		transaction.touched = (Subscription **) MemoryContextAlloc(TopTransactionContext,
																   size * sizeof(Subscription *));
	else
		transaction.touched = (Subscription **) repalloc_huge((void *) transaction.touched,
															  size * sizeof(Subscription *));
	transaction.touched_size = size;
}

static Subscription *
find(const char *channel, size_t length, HASHACTION action, bool *found)
{
	if (subscriptions == NULL)
	{
		HASHCTL		control = {
			.keysize = NAMEDATALEN,
			.entrysize = sizeof(Subscription),
			.hcxt = TopMemoryContext,
		};

		subscriptions = hash_create("pg_herald subscriptions", 64, &control,
									HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	}

	/* Use the hash that the queue's entries contain. */
	return hash_search_with_hash_value(subscriptions, channel,
									   herald_channel_hash(channel, length), action, found);
}

static void
drop(Subscription *subscription)
{
	found_last = NULL;
	if (subscription->is_entered)
		herald_channels_remove(MyDatabaseId, subscription->channel,
							   subscription->channel_hash, herald_shared_my_slot());
	hash_search_with_hash_value(subscriptions, subscription->channel,
								subscription->channel_hash, HASH_REMOVE, NULL);
}

/* The transaction is over, and its memory is about to be freed. */
static void
finish(void)
{
	bool		had_actions = herald_actions_count() > 0 || transaction.has_joined;

	memset(&transaction, 0, sizeof(transaction));
	herald_quota_end();
	herald_actions_reset();
	herald_server_steps_reset();
	if (!had_actions)
		return;

	if (subscriptions == NULL || hash_get_num_entries(subscriptions) == 0)
		herald_session_leave();
	else
		herald_session_set_channels(hash_get_num_entries(subscriptions));
}

/* Before the first channel is entered in the map. */
static void
join(void)
{
	static bool exit_registered;

	if (!exit_registered)
	{
		before_shmem_exit(leave_at_exit, (Datum) 0);
		exit_registered = true;
	}
	herald_session_join();
}

/*
 * The process may exit from anywhere, even from the channel map's code; a lock it still holds
 * would deadlock us.
 */
static void
leave_at_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	HERALD_HOLD_POINT("exit");
	leave_all();

	/* The abort that may follow has nothing left to undo. */
	memset(&transaction, 0, sizeof(transaction));
	herald_actions_reset();
	HERALD_HOLD_POINT("exit-without-channels");
	herald_session_leave();
	herald_wakeup_trust(herald_wakeup, herald_shared_my_slot());
}

static void
leave_all(void)
{
	HASH_SEQ_STATUS scan;
	Subscription *subscription;

	if (subscriptions == NULL)
		return;

	hash_seq_init(&scan, subscriptions);
	while ((subscription = hash_seq_search(&scan)) != NULL)
		drop(subscription);
}
