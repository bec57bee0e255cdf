/*-------------------------------------------------------------------------
 *
 * resumption.c
 *	  Channels whose delivery begins where a client has left off.
 *
 * One cursor reads all channels of a session.  To resume a channel, the session goes back to the place in the queue
 * from which the channel is resumed; the session's other channels do not receive the notifications after this place a
 * second time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/channel_hash.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/cursor/cursor.h"
#include "notify/listener/actions.h"
#include "notify/listener/resumption.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/bypass.h"
#include "notify/position/kept.h"
#include "notify/storage/spill.h"

static void close_unused_past(void);
static HeraldGone hold(HeraldPosition place, uint32 bypasses, bool logged, void *listen);


HeraldGone
herald_resumption_begin(const char *channel, const HeraldToken *token)
{
	HeraldAction *listen = herald_actions_find_listen(channel);
	HeraldChannelName name = herald_channel_name(channel);
	HeraldCursorRequest request = {
		.after = token,.channels = &name,.channels_used = 1,.outlives_transaction = true,
		.keep = hold,.arg = listen
	};
	HeraldGone	gone;

	Assert(listen != NULL);
	close_unused_past();
	request.is_alone = !herald_session_is_listener() && herald_actions_count() == 1;
	herald_subscriptions_join();
	HERALD_STOP_POINT("resume-joined");
	gone = herald_cursor_open(herald_session_cursor(), &request, &listen->has_past);
	if (herald_is_gone(gone))
	{
		listen->after = 0;
		listen->has_past = false;
		close_unused_past();
	}
	HERALD_STOP_POINT("resume-held");
	return gone;
}

/*
 * Close the past of the session's cursor if no channel uses the past.  An unused past is left over from a channel
 * that could not resume, or from a LISTEN that was rolled back.
 */
static void
close_unused_past(void)
{
	if (!herald_subscriptions_any_past() && !herald_actions_any_past())
		herald_cursor_close_past(herald_session_cursor());
}

/* Callback of herald_cursor_open(): hold the queue from this place on for this session. */
static HeraldGone
hold(HeraldPosition place, uint32 bypasses, bool logged, void *arg)
{
	HeraldAction *listen = arg;
	HeraldChannelName name = herald_channel_name(listen->channel);
	HeraldPosition had_read;

	if (!herald_spill_hold(name.hash, place, &had_read))
		return herald_kept_why_gone(place);

	/*
	 * The session's word may be at an earlier position now.  Note that even
	 * if the channel cannot resume after all.
	 */
	herald_subscriptions_note_held();
	if (place < had_read)
		herald_subscriptions_pass(had_read);
	else if (!herald_subscriptions_are_first())
		herald_session_set_positions_from(place);
	herald_bypass_await_counting();
	if (herald_bypass_since(bypasses, herald_bypass_sets(herald_channel_set(name.hash), logged, place)))
		return herald_gone(HERALD_GONE_PAST_QUEUE);
	listen->after = place;
	listen->bypasses = bypasses;
	listen->logged = logged;
	return herald_gone(HERALD_GONE_NOTHING);
}

void
herald_resumption_end_transaction(void)
{
	if (herald_session_cursor()->past != NULL && !herald_subscriptions_any_past())
		herald_cursor_close_past(herald_session_cursor());
}
