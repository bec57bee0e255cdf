/*-------------------------------------------------------------------------
 *
 * lag.h
 *	  How far a listener is behind.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LAG_H
#define HERALD_LAG_H

#include "postgres.h"

#include "utils/timestamp.h"

/* Has a listener with this word missed messages that were given up before it read them? */
extern bool herald_lag_has_missed(uint64 word);

/* Bytes that a listener with this word has not read; 0: the listener has nothing to read, or has missed messages. */
extern uint64 herald_lag_bytes(uint64 word);

/*
 * Commit time of the first batch that a listener with this word has not read.  False: there is
 * none, or the time is not known.  Needs a resource owner; may throw.
 */
extern bool herald_lag_since(uint64 word, TimestampTz *since);

#endif							/* HERALD_LAG_H */
