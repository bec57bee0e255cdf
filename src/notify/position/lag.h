/*-------------------------------------------------------------------------
 *
 * lag.h
 *	  How far a listener is behind.
 *
 * A listener's word has its state and its position in the queue (core/listener_word.h).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LAG_H
#define HERALD_LAG_H

#include "postgres.h"

#include "utils/timestamp.h"

/* Has a listener with this word missed messages that were given up before the listener read them? */
extern bool herald_lag_has_missed(uint64 word);

/*
 * Returns how many bytes a listener with this word has not read yet.  Returns 0 if the listener has nothing to read,
 * or has missed messages.
 */
extern uint64 herald_lag_bytes(uint64 word);

/*
 * Get the commit time of the first batch that a listener with this word has not read yet.  Returns false if there is
 * no such batch, or if the time is not known.  Needs a resource owner; may throw.
 */
extern bool herald_lag_since(uint64 word, TimestampTz *since);

#endif							/* HERALD_LAG_H */
