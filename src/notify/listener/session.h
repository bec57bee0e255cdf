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

#include "notify/listener/token.h"
#include "notify/storage/bypass.h"

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

/*
 * Everything before this position has been sent to the client, or is not for it; where
 * nobody listens, it was sent before the call.
 */
extern HeraldToken herald_session_position(void);

/*
 * In an empty transaction: if it is the one that the session has asked for, the server has
 * read its own queue for it, and what had been committed there when the transaction before
 * ended has been sent to the client.
 */
extern void herald_session_hears_natively(void);

/*
 * The client is to be told where the session is, when it has the next opportunity.
 * take: is it?  Forgets it.
 */
extern void herald_session_owe_position(void);
extern bool herald_session_take_owed_position(void);

/*
 * The session has resumed channels, and misses something all the same, or is to look whether
 * it does: there have been more transactions than so many past our queue, on channels of these sets.
 * The client is to be told before anything else.  take: is it?  Forgets it.  In a transaction; may throw.
 */
extern void herald_session_note_missed(void);
extern void herald_session_look_for_missed(uint32 bypasses, HeraldChannelSets sets);
extern bool herald_session_take_missed(void);

/* Were we told to read by the end of our own transaction?  Forgets it. */
extern bool herald_session_take_own_signal(void);

#endif							/* HERALD_SESSION_H */
