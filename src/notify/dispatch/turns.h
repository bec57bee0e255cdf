/*-------------------------------------------------------------------------
 *
 * turns.h
 *	  Turns, which limit how many listeners are awake at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TURNS_H
#define HERALD_TURNS_H

#include "postgres.h"

/* Maximum bytes that a listener reads in one turn; then it passes the turn on. */
#define HERALD_TURN_BYTES		((uint64) 256 * 1024)

/* Signal listeners of the wakeup set while there are turns.  Never fails. */
extern void herald_turns_pump(void);

/* The same, when a listener has seen that the server is at rest. */
extern void herald_turns_pump_at_rest(void);

/*
 * The same as herald_turns_pump(), without a limit on the number of listeners signalled without a turn.  By the
 * watchdog.
 */
extern void herald_turns_pump_all(void);

/*
 * A turn was not used: do not let the others wait for the next one that is not used either, but
 * wake many of them without turns.  By the watchdog.
 */
extern void herald_turns_wake_without(void);

/*
 * Signal the first listener: it hands out the other turns later, or if it does not, the
 * watchdog does.  Without a watchdog, signal listeners for all turns.  Never fails.
 */
extern void herald_turns_begin(void);

/*
 * If this listener has a turn, pass it to another one and continue without it.  Never fails.
 */
extern void herald_turns_give_back(void);

#endif							/* HERALD_TURNS_H */
