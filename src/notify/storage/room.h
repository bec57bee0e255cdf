/*-------------------------------------------------------------------------
 *
 * room.h
 *	  Waiting in line for room in the ring.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ROOM_H
#define HERALD_ROOM_H

#include "postgres.h"

/* Shared memory, for memory.c. */
extern Size herald_room_shared_size(void);
extern void herald_room_shared_init(void);

/*
 * Bytes that this sender has to leave to one that has waited for longer, for
 * HeraldBatch.room_left.
 */
extern uint64 herald_room_left(void);

/*
 * A sender of that many bytes found no room: it gets a place in line.  From then on it
 * misses nothing, so that it looks once more, and waits if that was in vain: until it is
 * told that there is room, or others have gone, or for `timeout_ms` at most.  Then it tries
 * again, and calls both again until it has room.  To wait may throw what interrupts throw.
 * Afterwards, and at the end of a transaction, herald_room_leave() is called; that never
 * throws, and is harmless to repeat.
 */
extern void herald_room_line_up(uint64 length);
extern void herald_room_wait(long timeout_ms);
extern void herald_room_leave(void);

/* How many have a place, and one more if one of them starves.  For tests. */
extern uint32 herald_room_in_line(void);

/* There is room, or may be: tell the first in line.  Never throws. */
extern void herald_room_announce(void);

/*
 * Where there is room, or can be, and the first in line does not take it, its process may be stopped:
 * others go first.  By anybody, again and again.  True: somebody has yet to take it.
 * Never throws.
 */
extern bool herald_room_pass_over(void);

#endif							/* HERALD_ROOM_H */
