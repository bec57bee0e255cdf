/*-------------------------------------------------------------------------
 *
 * resumption.c
 *	  Channels that begin where a client has left off.
 *
 * A channel can begin at a place of this server's queue.  Or, if the client has received more or
 * something else, from another server or from an earlier run of this one, with a history from the
 * WAL, and then at the place where that ends.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/channels/channel_settings.h"
#include "notify/listener/actions.h"
#include "notify/listener/resumption.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/logged/mark.h"
#include "notify/logged/relay_state.h"
#include "notify/position/bypass.h"
#include "notify/position/kept.h"
#include "notify/storage/spill.h"

/* What is to be delivered before the queue; NULL: nothing. */
static HeraldHistory *history;

static HeraldGone resume_at(HeraldAction *listen, HeraldPosition place, uint32 bypasses, bool logged);
static HeraldGone resume_by_wal(HeraldAction *listen, const HeraldToken *token);
static bool make_cut(const HeraldToken *token, HeraldCut *cut);
static void close_history(void);


HeraldGone
herald_resumption_begin(const char *channel, const HeraldToken *token)
{
	HeraldAction *listen = herald_actions_find_listen(channel);
	bool		logged = herald_channel_is_logged(channel);
	HeraldGone	result;

	Assert(listen != NULL);
	if (herald_shared_is_damaged())
		return HERALD_GONE_DAMAGED;
	if (!herald_relay_await_visible())
		return HERALD_GONE_RELAY;
	herald_subscriptions_join();
	HERALD_STOP_POINT("resume-joined");
	if (herald_token_is_here(token) && herald_token_precedes_database(token))
		result = HERALD_GONE_DATABASE;
	else if (herald_token_is_here(token) && herald_relay_covers(token->place, logged))
	{
		result = resume_at(listen, token->place, token->bypasses, logged);
		herald_mark_go_back(&token->wal);
	}
	else if (logged)
		result = resume_by_wal(listen, token);
	else
		result = herald_token_is_here(token) ? HERALD_GONE_UNLOGGED : HERALD_GONE_RUN;
	HERALD_STOP_POINT("resume-held");
	return result;
}

/* At a place of this server's queue. */
static HeraldGone
resume_at(HeraldAction *listen, HeraldPosition place, uint32 bypasses, bool logged)
{
	uint32		hash = herald_channel_hash(listen->channel, strlen(listen->channel));
	HeraldPosition had_read;

	if (!herald_spill_hold(hash, place, &had_read))
		return herald_kept_why_gone(place);

	/* The word has moved, whatever we return below. */
	herald_subscriptions_note_held();
	if (place < had_read)
		herald_subscriptions_pass(had_read);
	herald_bypass_await_counting();
	if (herald_bypass_since(bypasses, herald_bypass_sets(herald_channel_set(hash), logged, place)))
		return HERALD_GONE_PAST_QUEUE;
	listen->after = place;
	listen->bypasses = bypasses;
	listen->logged = logged;
	return HERALD_GONE_NOTHING;
}

/*
 * With what the WAL has up to the cut, and from there on in this server's queue.  All channels that
 * resume together do so after one token, and their notifications come in one order.  What
 * was read says nothing of a channel that was not logged until now.
 */
static HeraldGone
resume_by_wal(HeraldAction *listen, const HeraldToken *token)
{
	HeraldCut	cut;
	HeraldGone	result;
	bool		is_read;

	if (history == NULL)
	{
		history = herald_history_open(TopMemoryContext, true);
		herald_session_set_history(true);
	}
	herald_session_prepare_position();
	result = herald_history_find(history, token, &cut, &is_read);
	if (result != HERALD_GONE_NOTHING)
		return result;
	if (is_read && cut.settings != herald_channel_settings_version())
		return HERALD_GONE_UNLOGGED;
	if (!is_read && !make_cut(token, &cut))
		return HERALD_GONE_CUT;
	result = resume_at(listen, cut.place, cut.bypasses, true);
	if (result != HERALD_GONE_NOTHING)
		return result;
	if (!is_read)
		result = herald_history_read(history, token, &cut, NULL, 0);
	if (result == HERALD_GONE_NOTHING && !herald_history_covers(history, listen->channel))
		result = HERALD_GONE_UNLOGGED;
	if (result == HERALD_GONE_NOTHING)
		listen->has_past = true;
	else
		listen->after = 0;
	return result;
}

static bool
make_cut(const HeraldToken *token, HeraldCut *cut)
{
	herald_bypass_await_counting();
	cut->bypasses = herald_bypass_count();
	cut->settings = herald_channel_settings_version();
	return herald_cut_make(token, cut);
}

HeraldHistory *
herald_resumption_history(void)
{
	return history;
}

void
herald_resumption_end_history(void)
{
	herald_subscriptions_end_past();
	close_history();
}

void
herald_resumption_end_transaction(void)
{
	if (history != NULL && !herald_subscriptions_any_past())
		close_history();
}

static void
close_history(void)
{
	HeraldHistory *closed = history;

	history = NULL;
	herald_session_set_history(false);
	if (closed != NULL)
		herald_history_close(closed);
}
