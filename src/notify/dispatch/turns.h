/*-------------------------------------------------------------------------
 *
 * turns.h
 *	  Turns: so many listeners are woken at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TURNS_H
#define HERALD_TURNS_H

#include "postgres.h"

/* A turn's worth of reading, in bytes.  A listener with more to read lets others go first. */
#define HERALD_TURN_BYTES		((uint64) 256 * 1024)

/* Signal listeners of the wakeup set while there are turns.  Never fails. */
extern void herald_turns_pump(void);

/* The same, however many can only be signalled besides.  By the watchdog. */
extern void herald_turns_pump_all(void);

/*
 * Signal the first: a listener that gets a turn hands out the others, and if it
 * does not, the watchdog sees to it.  Without a watchdog, all.  Never fails.
 */
extern void herald_turns_begin(void);

/* This listener goes on without its turn, if it has one: another gets it.  Never fails. */
extern void herald_turns_give_back(void);

#endif							/* HERALD_TURNS_H */
