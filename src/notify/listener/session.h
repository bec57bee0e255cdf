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

/* Stop being a listener.  Never fails; harmless to repeat. */
extern void herald_session_leave(void);

/* Set the number of channels that this backend listens to, for the views and the quota. */
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
 * Has the client run a statement since the last call?  Then it may be waiting for
 * ReadyForQuery.
 */
extern bool herald_session_take_statement(void);

/*
 * The end of the queue when we were last idle, before the current transaction; 0: there is
 * none, or we did not listen yet.
 */
extern HeraldPosition herald_session_began_at(void);

/*
 * Finished batches before this position must be delivered before ReadyForQuery: their commits
 * were answered before the client's last message arrived.  Resets the value.
 */
extern HeraldPosition herald_session_take_answer_up_to(void);

/*
 * Before ReadyForQuery, deliver everything up to this position: the end of a batch that this
 * session has sent and listens to.  take: returns the position, 0 if there is none, and resets
 * it.
 */
extern void herald_session_await(HeraldPosition position);
extern HeraldPosition herald_session_take_awaited(void);

/*
 * Everything before the returned position has been sent to the client, or is not for it; in a
 * session that does not listen, everything before it was sent before the call.
 */
extern HeraldToken herald_session_position(void);

/*
 * In an empty transaction: if the session has requested it, the server has read its own queue
 * in it, and has sent the client everything that was committed there when the previous
 * transaction ended.
 */
extern void herald_session_hears_natively(void);

/*
 * Send the client the session's position at the next opportunity.  take: is a position owed?
 * Resets the flag.
 */
extern void herald_session_owe_position(void);
extern bool herald_session_take_owed_position(void);

/*
 * The session has resumed channels but has missed notifications (note_missed), or must check
 * whether it has: whether more than `bypasses` transactions have bypassed our queue on
 * channels of these sets (look_for_missed).  The client must be notified before anything else.
 * take: has it missed any?  Resets this.  In a transaction; may throw.
 */
extern void herald_session_note_missed(void);
extern void herald_session_look_for_missed(uint32 bypasses, HeraldChannelSets sets);
extern bool herald_session_take_missed(void);

/* Has the end of our own transaction requested a delivery?  Resets the flag. */
extern bool herald_session_take_own_signal(void);

#endif							/* HERALD_SESSION_H */
