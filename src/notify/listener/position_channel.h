/*-------------------------------------------------------------------------
 *
 * position_channel.h
 *	  Channel herald_position, on which a session receives its position.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_POSITION_CHANNEL_H
#define HERALD_POSITION_CHANNEL_H

#include "postgres.h"

#include "core/queue_layout.h"
#include "notify/channels/channel_map.h"
#include "notify/position/token.h"

/* The counters of the channel, if the client listens to it; NULL: it does not. */
extern HeraldChannelCounters *herald_position_channel_wanted(void);

/*
 * Send the client, which listens to the channel, its position.  place: what it is to be sent then is at this place
 * of the queue or beyond.  In a transaction; may throw.
 */
extern void herald_position_channel_tell(HeraldChannelCounters *counters, HeraldToken position, HeraldPosition place);

/* herald.heartbeat changes in this process.  Never fails. */
extern void herald_position_channel_heartbeat_changed(int period_ms, void *extra);

/*
 * The client of this listening session knows this position: send it a new one when this one is
 * old.
 */
extern void herald_position_channel_note(HeraldPosition position);

/* Is `position` old when the queue has reached `reached`? */
extern bool herald_position_channel_is_old(HeraldPosition position, HeraldPosition reached);

/* Does this listener receive positions, and is the last one old?  By any process. */
extern bool herald_position_channel_is_due(uint32 slot, HeraldPosition position);

/* By the watchdog, before it checks all listeners. */
extern void herald_position_channel_begin_look(void);

/*
 * If the listener is idle and its position is old, signal it.  By the watchdog.  True: it was
 * signalled.
 */
extern bool herald_position_channel_look(uint32 slot, uint64 word);

#endif							/* HERALD_POSITION_CHANNEL_H */
