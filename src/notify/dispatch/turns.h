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

/* Signal listeners of the wakeup set while there are turns.  Never fails. */
extern void herald_turns_pump(void);

/*
 * Signal the first: a listener that gets a turn hands out the others, and if it
 * does not, the watchdog sees to it.  Without a watchdog, all.  Never fails.
 */
extern void herald_turns_begin(void);

/* This listener goes on without its turn, if it has one: another gets it.  Never fails. */
extern void herald_turns_give_back(void);

#endif							/* HERALD_TURNS_H */
