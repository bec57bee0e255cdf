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

#include "core/queue_layout.h"

/*
 * Become a listener, inside a transaction, before the first channel is entered
 * in the map.  May throw.  Harmless to repeat.
 */
extern void herald_session_join(void);

/* Stop being one.  Never fails; harmless to repeat. */
extern void herald_session_leave(void);

/* How many channels it listens to, for the views. */
extern void herald_session_set_channels(uint32 channels);

extern bool herald_session_is_listener(void);

/* A statement begins: we are busy until the transaction ends.  Never fails. */
extern void herald_session_statement(void);

/* The transaction is to end with another one begun (AND CHAIN).  Never fails. */
extern void herald_session_chain(void);

/*
 * The transaction has ended, committed or not.  If something came in meanwhile
 * it is delivered before the client is told that we are ready.  Never fails.
 */
extern void herald_session_end_transaction(bool committed);

/*
 * Has nothing happened in this transaction that a client could have asked for?
 * Then it is one that the server runs in an idle backend to let it catch up.
 */
extern bool herald_session_is_idle_transaction(void);

/*
 * Has the client run a statement since we were asked last?  Then it may be
 * waiting for the server to be ready.
 */
extern bool herald_session_take_statement(void);

/*
 * Where the queue ended when we were idle last, before the transaction that is
 * under way; 0: there is none, or we did not listen yet.
 */
extern HeraldPosition herald_session_began_at(void);

/*
 * What is finished and before this position is to be delivered before the client
 * is told that we are ready: it was answered before the client's last message came.
 * Forgets it.
 */
extern HeraldPosition herald_session_take_answer_up_to(void);

/*
 * Do not let the client go on before everything up to this position, which its
 * own transaction sent and listens to, has been delivered.  take: 0 if there is
 * nothing; forgets it.
 */
extern void herald_session_await(HeraldPosition position);
extern HeraldPosition herald_session_take_awaited(void);

/* Were we told to read by the end of our own transaction?  Forgets it. */
extern bool herald_session_take_own_signal(void);

#endif							/* HERALD_SESSION_H */
