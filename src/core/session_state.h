/*-------------------------------------------------------------------------
 *
 * session_state.h
 *	  What a listener's session is doing, as its own process sees it.
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
	HERALD_SESSION_IDLE,		/* no statement of the client's has come in this transaction */
	HERALD_SESSION_HELD,		/* the same, but it cannot deliver: a transaction before has not let go of it */
	HERALD_SESSION_BUSY,		/* a transaction of the client's is under way */
	HERALD_SESSION_CHAINED		/* its end will begin another */
} HeraldSessionState;

#define HERALD_SESSION_STATES	(HERALD_SESSION_CHAINED + 1)

typedef enum HeraldSessionEvent
{
	HERALD_SESSION_JOINS,		/* it becomes a listener, at the end of a transaction */
	HERALD_SESSION_LEAVES,
	HERALD_SESSION_STATEMENT,	/* outside of a block that has failed */
	HERALD_SESSION_CHAIN,		/* COMMIT AND CHAIN, ROLLBACK AND CHAIN */
	HERALD_SESSION_COMMIT,
	HERALD_SESSION_ABORT,
	HERALD_SESSION_ABORT_IN_BLOCK	/* the client may owe a ROLLBACK */
} HeraldSessionEvent;

#define HERALD_SESSION_EVENTS	(HERALD_SESSION_ABORT_IN_BLOCK + 1)

/*
 * The state after an event.  Before a session goes from IDLE to BUSY its word has to
 * say so; when a transaction's end takes it to IDLE, the word has to say that.
 */
extern HeraldSessionState herald_session_next(HeraldSessionState state, HeraldSessionEvent event);

/* Does the session's word say BUSY? */
static inline bool
herald_session_state_is_busy(HeraldSessionState state)
{
	return state >= HERALD_SESSION_HELD;
}

#endif							/* HERALD_SESSION_STATE_H */
