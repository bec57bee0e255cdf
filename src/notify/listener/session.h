/*-------------------------------------------------------------------------
 *
 * session.h
 *	  This backend as a listener: joining, leaving, being busy.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SESSION_H
#define HERALD_SESSION_H

#include "postgres.h"

#include "notify/cursor/cursor.h"
#include "notify/listener/delivery.h"
#include "notify/position/token.h"

/*
 * Become a listener, inside a transaction, before the first channel is entered
 * in the map.  May throw.  Harmless to repeat.
 */
extern void herald_session_join(void);

/* Stop being a listener.  Never fails; harmless to repeat. */
extern void herald_session_leave(void);

/* Set the number of channels that this backend listens to, for the views. */
extern void herald_session_set_channels(uint32 channels);

extern bool herald_session_is_listener(void);

/* A statement begins: we are busy until the transaction ends.  Never fails. */
extern void herald_session_statement(void);

/* The end of the transaction will begin another one (AND CHAIN).  Never fails. */
extern void herald_session_chain(void);

/*
 * The transaction has ended, committed or not.  Messages that arrived meanwhile are delivered
 * before ReadyForQuery.  Never fails.
 */
extern void herald_session_end_transaction(bool committed);

/*
 * Has this transaction run no statement of the client?  Then the server runs it in an idle
 * backend to let it catch up.
 */
extern bool herald_session_is_idle_transaction(void);

/*
 * The end of the queue when we were last idle, before the current transaction; 0: there is
 * none, or we did not listen yet.
 */
extern HeraldPosition herald_session_began_at(void);

/*
 * What the next delivery owes the client.  owed: to fill in, at the end of a transaction.
 * take_owed: for the delivery; resets it.  Never fail.
 */
extern HeraldDelivery *herald_session_owed(void);
extern HeraldDelivery herald_session_take_owed(void);

/* What this session's client has received, and what it is still to receive from the WAL. */
extern HeraldCursor *herald_session_cursor(void);

/*
 * The position of a listening session's client: everything before it has been sent, or is not for it.  In a session
 * that does not listen, everything before it was sent before the call.  In a transaction; may wait
 * for a standby's relay to begin, and throw.
 */
extern HeraldToken herald_session_position(void);

/* Of a listening session whose client has been sent everything before this place, and all of its history.  Never fails. */
extern HeraldToken herald_session_position_at(HeraldPosition place);

/* Before this place there is no position for all channels of the session.  Never fails. */
extern void herald_session_set_positions_from(HeraldPosition position);

/* Is there a position for all channels, if everything before this one has been sent? */
extern bool herald_session_has_position(HeraldPosition position);

/*
 * In an empty transaction.  If the session has requested it for the server's own queue, the
 * server has sent the client everything that was committed there when the previous transaction
 * ended: note that.
 */
extern void herald_session_hears_natively(void);

#endif							/* HERALD_SESSION_H */
