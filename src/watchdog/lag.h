/*-------------------------------------------------------------------------
 *
 * lag.h
 *	  How far listeners are behind, and a log line about each that is far behind.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LAG_H
#define HERALD_LAG_H

#include "postgres.h"

#include "utils/timestamp.h"

/* Was something given up that a listener with this word had yet to read? */
extern bool herald_lag_has_missed(uint64 word);

/* Bytes that a listener with this word has yet to read; 0: nothing is for it, or it has missed something. */
extern uint64 herald_lag_bytes(uint64 word);

/*
 * When was the first of it committed?  False: there is nothing, or it cannot
 * be told.  Needs a resource owner; may throw.
 */
extern bool herald_lag_since(uint64 word, TimestampTz *since);

typedef enum HeraldLag
{
	HERALD_LAG_NONE,			/* it does not lag, or is logged */
	HERALD_LAG_MAY_BEGIN,		/* look again soon, it may have to be logged */
	HERALD_LAG_REPORTED			/* it has just been logged, which takes time */
} HeraldLag;

/*
 * The watchdog has seen this word: log the listener if it lags, once until it
 * has caught up.
 */
extern HeraldLag herald_lag_look(uint32 slot, uint64 word, uint64 now_ms);

#endif							/* HERALD_LAG_H */
