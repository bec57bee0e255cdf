/*-------------------------------------------------------------------------
 *
 * session.c
 *	  This backend as a listener: joining, leaving, being busy.
 *
 * A backend in a transaction of its client cannot deliver anything before the transaction
 * ends.  So its word becomes BUSY when the transaction's first statement passes one of our
 * hooks: then no process signals the backend, and it checks for messages itself at the end.
 *
 * If another client's commit was answered before our client sent its statement, the
 * notification must arrive no later than the statement's answer.  Its batch is finished, and
 * before the end of the queue as the statement found it; but another process may not have
 * marked us for it yet.  So the end of the transaction checks whether the dispatch has reached
 * that position.
 *
 * A failed transaction block is still a block: our callbacks have seen the end of the
 * transaction, and no callback reports the ROLLBACK that the client still has to send, but
 * nothing can be delivered before that.  So we stay BUSY, and make the server believe that a
 * notification is pending: it runs an empty transaction as soon as it has left the block, and
 * our callbacks see the end of that one.  The same applies between the transactions of a
 * chain.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"

#include "base/client_message.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/shared.h"
#include "base/signal.h"
#include "core/session_state.h"
#include "notify/cursor/cursor.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/heartbeat.h"
#include "notify/listener/read_buffer.h"
#include "notify/listener/session.h"
#include "notify/position/bypass.h"
#include "notify/storage/spill.h"

static struct
{
	HeraldSessionState state;
	HeraldDelivery owed;
	TimestampTz message_at_hook;	/* the client's last message that passed a
									 * hook */
	HeraldPosition head_at_hook;	/* the end of the queue at that time */
	HeraldPosition began_at;	/* the same for the first message since we
								 * were idle */
	HeraldCursor cursor;		/* the place and the bypasses of its position:
								 * herald_session_position_at() */
	uint32		bypasses_heard; /* see herald_session_hears_natively() */
	uint32		bypasses_at_end;	/* the number when the last transaction
									 * ended */
	bool		wants_positions;	/* the session has requested a position */
	HeraldPosition positions_from;	/* see herald_session_has_position() */
	bool		hears_again;	/* see must_hear_natively() */
	TimestampTz message_at_end; /* arrival of the client's latest message when
								 * the last transaction ended */
	int			failures;		/* consecutive failures of empty transactions */
}			session;

/*
 * Stands for the end of the queue when the value is taken: no hook reports the ROLLBACK of a
 * failed block.
 */
#define HERALD_QUEUE_END	PG_UINT64_MAX

/*
 * After this number of consecutive failures the next error ends the session; a single failure
 * may be a cancel request.
 */
#define FAILURES_MAX	3

static HeraldSessionState step(HeraldSessionEvent event);
static bool may_fail_in_block(void);
static bool message_has_come(void);
static bool note_message(void);
static HeraldPosition queue_end(void);
static bool is_pending(void);
static bool must_hear_natively(bool was_idle);
static bool rest(void);


void
herald_session_join(void)
{
	uint32		slot = herald_shared_my_slot();
	HeraldSlot *mine = &herald_slots[slot];

	if (herald_session_is_listener())
		return;

	herald_read_buffer_allocate();
	herald_cursor_prepare();
	atomic_store_explicit(&mine->process, herald_my_proc_number(), memory_order_relaxed);
	atomic_store_explicit(&mine->database, MyDatabaseId, memory_order_relaxed);
	atomic_store_explicit(&mine->role, GetSessionUserId(), memory_order_relaxed);
	atomic_store_explicit(&mine->channels, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->channel_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->delivered, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->wakeups, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->told, 0, memory_order_relaxed);

	/*
	 * [S2] First store our pid, then clear the reasons for an earlier owner
	 * of the slot: pairs with herald_signal_notifications().
	 */
	atomic_store_explicit(&mine->pid, MyProcPid, memory_order_seq_cst);
	atomic_fetch_and_explicit(&mine->reasons, ~HERALD_REASONS_NOTIFY, memory_order_seq_cst);

	herald_wakeup_join(herald_wakeup, slot,
					   atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst));
	(void) step(HERALD_SESSION_JOINS);
	session.began_at = session.head_at_hook = session.positions_from = 0;
	session.bypasses_heard = session.bypasses_at_end = herald_bypass_count();
	herald_cursor_begin(&session.cursor);
	(void) herald_note_client_message(&session.message_at_hook);
}

void
herald_session_leave(void)
{
	uint32		slot = herald_shared_my_slot();

	if (!herald_session_is_listener())
		return;

	(void) step(HERALD_SESSION_LEAVES);
	memset(&session.owed, 0, sizeof(session.owed));
	session.wants_positions = session.hears_again = false;
	herald_wakeup_leave(herald_wakeup, slot);
	atomic_store_explicit(&herald_slots[slot].told, 0, memory_order_relaxed);
	herald_heartbeat_end();
	atomic_store_explicit(&herald_slots[slot].pid, 0, memory_order_relaxed);
	(void) herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY);
	herald_turns_pump();
}

void
herald_session_set_channels(uint32 channels)
{
	atomic_store_explicit(&herald_slots[herald_shared_my_slot()].channels, channels,
						  memory_order_relaxed);
}

bool
herald_session_is_listener(void)
{
	return session.state != HERALD_SESSION_ABSENT;
}

/*
 * A statement in a failed block does not count: our callbacks see no other end of transaction
 * after it.
 */
void
herald_session_statement(void)
{
	bool		is_new;

	/* Most backends do not listen, and every statement passes here. */
	if (!herald_session_is_listener() || IsAbortedTransactionBlockState())
		return;

	session.owed.follows_statement = true;
	is_new = note_message();
	if (step(HERALD_SESSION_STATEMENT) != HERALD_SESSION_IDLE)
		return;

	/* A signal that is on its way is not needed any more. */
	if (is_new)
		session.began_at = session.head_at_hook;
	(void) herald_reasons_take(&herald_slots[herald_shared_my_slot()].reasons, HERALD_REASONS_NOTIFY);
	if (herald_wakeup_busy(herald_wakeup, herald_shared_my_slot()))
		herald_turns_pump();
}

void
herald_session_chain(void)
{
	(void) step(HERALD_SESSION_CHAIN);
	herald_is_involved = true;
}

void
herald_session_end_transaction(bool committed)
{
	bool		was_idle = step(committed ? HERALD_SESSION_COMMIT :
								may_fail_in_block() ? HERALD_SESSION_ABORT_IN_BLOCK :
								HERALD_SESSION_ABORT) == HERALD_SESSION_IDLE;
	bool		polled = message_has_come() && was_idle;
	HeraldPosition up_to = polled ? queue_end() : session.head_at_hook;

	if (session.wants_positions)
		session.bypasses_at_end = herald_bypass_count();
	polled = polled && (is_pending() || herald_dispatch_is_behind(up_to));
	if (committed && session.failures > 0)
	{
		if (session.failures >= FAILURES_MAX)
			ExitOnAnyError = false;
		session.failures = 0;
	}
	if (must_hear_natively(was_idle))
	{
		session.owed.is_requested = true;
		herald_signal_self();
	}
	if (!herald_session_is_listener() ||
		(committed && was_idle && !polled && !herald_delivery_is_owed(&session.owed)))
		return;

	/*
	 * [S1] An empty transaction that failed before it could deliver has used
	 * up its signal. Take the reasons before checking the word: while they
	 * are set, no process sends another signal.
	 */
	if (!committed)
		(void) herald_reasons_take(&herald_slots[herald_shared_my_slot()].reasons, HERALD_REASONS_NOTIFY);

	/*
	 * A heartbeat was not sent within the transaction.  An empty transaction
	 * that has failed may fail each time: not again before the next one.
	 */
	if (herald_heartbeat_is_due())
	{
		if (!was_idle)
			session.owed.sends_position = true;
		else if (!committed)
			herald_heartbeat_skip();
	}
	if (herald_session_state_is_busy(session.state) || rest() || polled ||
		herald_dispatch_is_behind(up_to))
	{
		session.owed.answer_up_to = herald_session_state_is_busy(session.state) ? HERALD_QUEUE_END : up_to;

		/*
		 * Code of the server or of another module fails each time before we
		 * can deliver: report the error instead of retrying for ever.
		 */
		if (!committed && was_idle && ++session.failures >= FAILURES_MAX)
			ExitOnAnyError = true;
		session.owed.is_requested = true;
		herald_signal_self();
	}
}

/* Returns the previous state. */
static HeraldSessionState
step(HeraldSessionEvent event)
{
	HeraldSessionState before = session.state;

	session.state = herald_session_next(before, event);
	return before;
}

/*
 * May this abort leave the client in a failed block?  Until the callbacks have ended, the
 * server's state does not distinguish that from a failed COMMIT or an implicit block; in these
 * cases the empty transaction follows at once.
 */
static bool
may_fail_in_block(void)
{
	return TransactionBlockStatusCode() == 'T';
}

/*
 * Has a message of the client arrived since the last call?  Some clients poll with an empty
 * query or a fast-path call, which pass no hook; statements that fail early pass no hook
 * either.  Notifications that are dispatched by this time must arrive with the answer, even if
 * we are still waiting for a turn.
 */
static bool
message_has_come(void)
{
	return herald_note_client_message(&session.message_at_end);
}

/*
 * True for the first statement of a client's message.  Within one message, which may contain
 * several transactions and may have begun in a block, the client receives no ReadyForQuery,
 * and we are not idle.
 */
static bool
note_message(void)
{
	if (!herald_note_client_message(&session.message_at_hook))
		return false;
	session.head_at_hook = queue_end();
	return true;
}

/* All commits that have been answered before this call are before the returned position. */
static HeraldPosition
queue_end(void)
{
	return atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);
}

static bool
is_pending(void)
{
	return herald_listener_is_pending(herald_shared_my_word());
}

/*
 * Must an empty transaction follow in which the server reads its own queue for us?  Yes if
 * more transactions have bypassed our queue since the server last did so: the position that we
 * report would cover less than the client has received.  Only once, even if there are more of
 * them each time.
 */
static bool
must_hear_natively(bool was_idle)
{
	bool		is_behind = session.wants_positions && session.bypasses_at_end != session.bypasses_heard;

	/*
	 * This empty transaction was for another purpose, such as invalidations;
	 * ours follows.
	 */
	if (was_idle && session.hears_again && notifyInterruptPending)
		return false;
	session.hears_again = is_behind && !(was_idle && session.hears_again);
	return session.hears_again;
}

/* Set our word to idle.  True: there is something to deliver. */
static bool
rest(void)
{
	/*
	 * An empty transaction that failed before it could deliver has used up
	 * the signal: the word is still SIGNALLED, and no process sends another
	 * signal.
	 */
	return herald_wakeup_rest(herald_wakeup, herald_shared_my_slot()) ||
		herald_delivery_is_owed(&session.owed) ||
		herald_word_state(herald_shared_my_word()) == HERALD_LISTENER_SIGNALLED;
}

bool
herald_session_is_idle_transaction(void)
{
	return (session.state == HERALD_SESSION_IDLE || session.state == HERALD_SESSION_HELD) &&
		debug_query_string == NULL && !proc_exit_inprogress;
}

HeraldPosition
herald_session_began_at(void)
{
	return herald_session_state_is_busy(session.state) ? session.began_at : 0;
}

HeraldDelivery *
herald_session_owed(void)
{
	return &session.owed;
}

HeraldDelivery
herald_session_take_owed(void)
{
	HeraldDelivery owed = session.owed;

	memset(&session.owed, 0, sizeof(session.owed));
	if (owed.answer_up_to == HERALD_QUEUE_END)
		owed.answer_up_to = queue_end();
	return owed;
}

HeraldCursor *
herald_session_cursor(void)
{
	return &session.cursor;
}

HeraldToken
herald_session_position(void)
{
	HeraldCursor now;
	HeraldPosition place;

	herald_cursor_prepare();
	if (!herald_session_is_listener())
	{
		herald_cursor_begin(&now);
		return herald_cursor_position(&now);
	}
	session.wants_positions = true;
	place = herald_wakeup_has_read(herald_wakeup, herald_queue, herald_shared_my_slot());
	return herald_session_has_position(place) ? herald_session_position_at(place) : herald_cursor_no_position();
}

HeraldToken
herald_session_position_at(HeraldPosition place)
{
	session.wants_positions = true;
	session.cursor.at.place = place;
	session.cursor.at.bypasses = session.bypasses_heard;
	return herald_cursor_position(&session.cursor);
}

void
herald_session_set_positions_from(HeraldPosition position)
{
	session.positions_from = Max(session.positions_from, position);
}

bool
herald_session_has_position(HeraldPosition position)
{
	return session.cursor.past == NULL && position >= session.positions_from;
}

void
herald_session_hears_natively(void)
{
	if (!session.hears_again || notifyInterruptPending)
		return;
	session.owed.sends_position = session.owed.sends_position || session.bypasses_heard != session.bypasses_at_end;
	session.bypasses_heard = session.bypasses_at_end;
}
