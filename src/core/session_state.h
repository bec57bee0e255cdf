/*-------------------------------------------------------------------------
 *
 * session_state.h
 *	  The state of a listener's session, as seen by its own process.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SESSION_STATE_H
#define HERALD_SESSION_STATE_H

#include <stdbool.h>

typedef enum HeraldSessionState
{
	HERALD_SESSION_ABSENT,		/* it is not a listener */
	HERALD_SESSION_IDLE,		/* the client has sent no statement in this
								 * transaction */
	HERALD_SESSION_HELD,		/* the same, but it cannot deliver: it has
								 * just joined, or an earlier transaction
								 * still blocks delivery */
	HERALD_SESSION_BUSY,		/* in a transaction of the client */
	HERALD_SESSION_CHAINED		/* the same, and its end will begin another
								 * transaction */
} HeraldSessionState;

#define HERALD_SESSION_STATES	(HERALD_SESSION_CHAINED + 1)

typedef enum HeraldSessionEvent
{
	HERALD_SESSION_JOINS,		/* it becomes a listener, in a transaction */
	HERALD_SESSION_LEAVES,
	HERALD_SESSION_STATEMENT,	/* outside of a failed transaction block */
	HERALD_SESSION_CHAIN,		/* COMMIT AND CHAIN, ROLLBACK AND CHAIN */
	HERALD_SESSION_COMMIT,
	HERALD_SESSION_ABORT,
	HERALD_SESSION_ABORT_IN_BLOCK	/* the client may still have to send
									 * ROLLBACK */
} HeraldSessionEvent;

#define HERALD_SESSION_EVENTS	(HERALD_SESSION_ABORT_IN_BLOCK + 1)

/*
 * The state after an event.  The listener's word must become BUSY before the session goes from
 * IDLE to BUSY, and must leave BUSY when the end of a transaction takes the session to IDLE.
 */
extern HeraldSessionState herald_session_next(HeraldSessionState state, HeraldSessionEvent event);

/* Is the session's word BUSY? */
static inline bool
herald_session_state_is_busy(HeraldSessionState state)
{
	return state >= HERALD_SESSION_HELD;
}

#endif							/* HERALD_SESSION_STATE_H */
