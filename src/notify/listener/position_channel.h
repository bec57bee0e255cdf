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
 * If the client listens to the channel: everything before this place has been sent to
 * it.  In a transaction; may throw.
 */
extern void herald_position_channel_tell(HeraldPlace place);

/* The client of a session that listens knows this position: it is to have a new one when that is old. */
extern void herald_position_channel_note(HeraldPosition position);

/* Is the one position old, as the queue has got to the other? */
extern bool herald_position_channel_is_old(HeraldPosition position, HeraldPosition reached);

/* Is a listener told its position, and is what it was told last old?  By anybody. */
extern bool herald_position_channel_is_due(uint32 slot, HeraldPosition position);

/* By the watchdog, before it looks at all listeners. */
extern void herald_position_channel_begin_look(void);

/* Signal the listener if it is idle and has an old position.  By the watchdog.  True: it was signalled. */
extern bool herald_position_channel_look(uint32 slot, uint64 word);

#endif							/* HERALD_POSITION_CHANNEL_H */
