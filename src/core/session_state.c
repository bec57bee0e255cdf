/*-------------------------------------------------------------------------
 *
 * session_state.c
 *	  The state of a listener's session, as seen by its own process.
 *
 * In the state HELD the session cannot deliver although the client has sent no statement: it
 * has just joined, its block has failed and the client has not sent ROLLBACK, or the
 * transaction is the next of a chain.  An empty transaction of the server, which follows as
 * soon as the block has ended, takes it to IDLE.
 *
 * A statement does not end CHAINED: deferred triggers run statements between
 * COMMIT AND CHAIN and the commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "session_state.h"

#define ABSENT		HERALD_SESSION_ABSENT
#define IDLE		HERALD_SESSION_IDLE
#define HELD		HERALD_SESSION_HELD
#define BUSY		HERALD_SESSION_BUSY
#define CHAINED		HERALD_SESSION_CHAINED

/* In each row: JOINS, LEAVES, STATEMENT, CHAIN, COMMIT, ABORT, ABORT_IN_BLOCK. */
static const HeraldSessionState next[HERALD_SESSION_STATES][HERALD_SESSION_EVENTS] = {
	[ABSENT] = {HELD, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT},
	[IDLE] = {IDLE, ABSENT, BUSY, IDLE, IDLE, IDLE, IDLE},
	[HELD] = {HELD, ABSENT, BUSY, CHAINED, IDLE, IDLE, HELD},
	[BUSY] = {BUSY, ABSENT, BUSY, CHAINED, IDLE, IDLE, HELD},
	[CHAINED] = {CHAINED, ABSENT, CHAINED, CHAINED, HELD, HELD, HELD},
};


HeraldSessionState
herald_session_next(HeraldSessionState state, HeraldSessionEvent event)
{
	return next[state][event];
}
