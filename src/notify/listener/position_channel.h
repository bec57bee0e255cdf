/*-------------------------------------------------------------------------
 *
 * position_channel.h
 *	  Channel herald_position, on which a session is told its position.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_POSITION_CHANNEL_H
#define HERALD_POSITION_CHANNEL_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * If the client listens to the channel: everything before this position has been sent to
 * it.  In a transaction; may throw.
 */
extern void herald_position_channel_tell(HeraldPosition position);

/* Is a listener told its position, and is what it was told last old?  By anybody. */
extern bool herald_position_channel_is_due(uint32 slot, HeraldPosition position);

/* By the watchdog, before it looks at all listeners. */
extern void herald_position_channel_begin_look(void);

/* Signal the listener if it is idle and has an old position.  By the watchdog.  True: it was signalled. */
extern bool herald_position_channel_look(uint32 slot, uint64 word);

#endif							/* HERALD_POSITION_CHANNEL_H */
