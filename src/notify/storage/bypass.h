/*-------------------------------------------------------------------------
 *
 * bypass.h
 *	  Transactions whose notifications go past our queue, by the server's own.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_BYPASS_H
#define HERALD_BYPASS_H

#include "postgres.h"

#include "base/channel_sets.h"

/*
 * Before the commit: the server has nothing to send for this transaction but what is
 * handed to it from here on, on these channels.  Without that, or once it is
 * forgotten, there may be something on any channel.  Never fail.
 */
extern void herald_bypass_begin(void);
extern void herald_bypass_add(uint32 channel_hash);
extern void herald_bypass_forget(void);

/* Does the server send something for this transaction, whose commit can be seen?  In its callback. */
extern bool herald_bypass_is_own(void);

/* If so, count it.  Never fails. */
extern void herald_bypass_commit(void);

/* How many have committed in this database, and perhaps in others: a number to compare. */
extern uint32 herald_bypass_count(void);

/* Wait for one that can be seen and is not counted.  In a transaction; may throw. */
extern void herald_bypass_await_counting(void);

/* Have there been more since then, on channels of one of these sets?  Then what is in our queue is not all that was sent. */
extern bool herald_bypass_since(uint32 count, HeraldChannelSets sets);

#endif							/* HERALD_BYPASS_H */
