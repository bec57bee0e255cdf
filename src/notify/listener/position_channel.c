/*-------------------------------------------------------------------------
 *
 * position_channel.c
 *	  Channel herald_position, on which a session receives its position.
 *
 * The session receives it after each delivery, and at regular intervals within a long one.  If
 * a session receives nothing while others send, its position becomes old, until the messages
 * after it are not kept any more.  So an idle session also receives a new position when the
 * queue has advanced by a segment.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "miscadmin.h"

#include "base/own_channels.h"
#include "base/shared.h"
#include "base/signal.h"
#include "notify/listener/frames.h"
#include "notify/listener/heartbeat.h"
#include "notify/listener/position_channel.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/token.h"



void
herald_position_channel_tell(HeraldChannelCounters *counters, HeraldToken position, HeraldPosition place)
{
	HeraldTokenHash *hash;
	char		text[HERALD_TOKEN_MAX + 1];

	herald_position_channel_note(place);
	hash = herald_token_hash_open();
	herald_token_write(hash, &position, text);
	herald_token_hash_close(hash);

	/* The process id, and both strings with their NULs. */
	herald_frames_expect(sizeof(uint32) + sizeof(HERALD_POSITION_CHANNEL) + (uint32) strlen(text) + 1);
	NotifyMyFrontEnd(HERALD_POSITION_CHANNEL, text, MyProcPid);
	herald_heartbeat_told();
	herald_channels_count_own(counters);
}

HeraldChannelCounters *
herald_position_channel_wanted(void)
{
	_Atomic uint64_t *told = &herald_slots[herald_shared_my_slot()].told;
	HeraldChannelCounters *counters = herald_subscriptions_counters(HERALD_POSITION_CHANNEL);

	if (counters == NULL)
	{
		if (atomic_load(told) != 0)
			atomic_store(told, 0);
		herald_heartbeat_end();
	}
	return counters;
}

void
herald_position_channel_heartbeat_changed(int period_ms, void *extra)
{
	if (herald_session_is_listener() && herald_subscriptions_counters(HERALD_POSITION_CHANNEL) != NULL)
		herald_heartbeat_set_period((uint32) period_ms);
}

void
herald_position_channel_note(HeraldPosition position)
{
	atomic_store(&herald_slots[herald_shared_my_slot()].told, position);
	if (atomic_load(&herald_control->tells_positions) == 0)
		atomic_store(&herald_control->tells_positions, 1);
}

bool
herald_position_channel_is_old(HeraldPosition position, HeraldPosition reached)
{
	return reached >= position + herald_queue->segment_size;
}

bool
herald_position_channel_is_due(uint32 slot, HeraldPosition position)
{
	HeraldPosition told = atomic_load_explicit(&herald_slots[slot].told, memory_order_relaxed);

	return told != 0 && herald_position_channel_is_old(told, position);
}

void
herald_position_channel_begin_look(void)
{
	atomic_store(&herald_control->tells_positions, 0);
}

bool
herald_position_channel_look(uint32 slot, uint64 word)
{
	if (atomic_load(&herald_slots[slot].told) == 0)
		return false;
	if (atomic_load(&herald_control->tells_positions) == 0)
		atomic_store(&herald_control->tells_positions, 1);
	return herald_position_channel_is_due(slot, atomic_load(&herald_queue->settled)) && herald_signal_idle(slot, word);
}
