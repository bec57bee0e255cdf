/*-------------------------------------------------------------------------
 *
 * session.c
 *	  This backend as a listener: joining, leaving, being busy.
 *
 * A backend with a transaction of its client's under way cannot deliver
 * anything before that ends, so it says in its word that it is BUSY: then it
 * costs nobody a signal, and looks by itself at the end.  It says so when the
 * first statement of the transaction comes by one of our hooks.
 *
 * What others were told of as committed before the client sent its statement is
 * to be there with the answer, at the latest.  It is before the end of the queue
 * as the statement found it, and it is finished; but another process may not have
 * come to mark us for it yet.  So the end of the transaction looks whether the
 * dispatch has got so far.
 *
 * A transaction block that has failed is still a block: for us the transaction
 * is over, and no callback will tell of the ROLLBACK that the client owes, but
 * nothing can be delivered before that.  So we remain BUSY, and tell the server
 * that there is something to deliver: it runs an empty transaction as soon as
 * it is out of the block, and that has an end.  The same between the
 * transactions of a chain.
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

#include "base/bell.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/shared.h"
#include "base/signal.h"
#include "core/session_state.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/read_buffer.h"
#include "notify/listener/session.h"
#include "notify/storage/spill.h"

static struct
{
	HeraldSessionState state;
	bool		statement_before;	/* see herald_session_take_statement() */
	bool		own_signal;		/* see herald_session_take_own_signal() */
	TimestampTz message_time;	/* when the client's last one that passed a hook came... */
	HeraldPosition message_at;	/* ... and where the queue ended then */
	HeraldPosition began_at;	/* the same of the first message since we were idle */
	HeraldPosition answer_up_to;	/* see herald_session_take_answer_up_to() */
	HeraldPosition awaited;		/* see herald_session_await(); 0: nothing */
	bool		position_owed;	/* see herald_session_owe_position() */
	bool		has_missed;		/* see herald_session_note_missed() */
	uint32		resumed_bypasses;	/* see herald_session_look_for_missed() */
	HeraldChannelSets resumed_sets;
	uint32		bypasses_heard; /* see herald_session_hears_natively() */
	uint32		bypasses_at_end;	/* when the last transaction ended */
	bool		wants_positions;	/* it has asked for one */
	bool		hears_again;	/* see must_hear_natively() */
	TimestampTz message;		/* when the client's last one came, at the last end */
	int			failures;		/* of empty transactions, one after another */
}			session;

/* Where the queue ends when it is asked for: the ROLLBACK of a failed block passes no hook that counts. */
#define HERALD_QUEUE_END	PG_UINT64_MAX

/* So many are survived: the first may have been cancelled. */
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
	atomic_store_explicit(&mine->process, herald_my_proc_number(), memory_order_relaxed);
	atomic_store_explicit(&mine->database, MyDatabaseId, memory_order_relaxed);
	atomic_store_explicit(&mine->role, GetSessionUserId(), memory_order_relaxed);
	atomic_store_explicit(&mine->channels, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->delivered, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->wakeups, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->told, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->lagging_since, 0, memory_order_relaxed);

	/*
	 * [S2] First our pid, then clear what was meant for an earlier owner of
	 * the slot: pairs with herald_signal_notifications().
	 */
	atomic_store_explicit(&mine->pid, MyProcPid, memory_order_seq_cst);
	atomic_fetch_and_explicit(&mine->reasons, ~HERALD_REASONS_NOTIFY, memory_order_seq_cst);

	herald_wakeup_join(herald_wakeup, slot,
					   atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst));
	(void) step(HERALD_SESSION_JOINS);
	session.began_at = session.message_at = 0;
	session.bypasses_heard = session.bypasses_at_end = herald_bypass_count();
	session.message_time = GetCurrentStatementStartTimestamp();
}

void
herald_session_leave(void)
{
	uint32		slot = herald_shared_my_slot();

	if (!herald_session_is_listener())
		return;

	(void) step(HERALD_SESSION_LEAVES);
	session.own_signal = session.position_owed = session.has_missed = false;
	session.resumed_sets = 0;
	session.wants_positions = session.hears_again = false;
	session.answer_up_to = 0;
	herald_wakeup_leave(herald_wakeup, slot);
	atomic_store_explicit(&herald_slots[slot].told, 0, memory_order_relaxed);
	atomic_store_explicit(&herald_slots[slot].pid, 0, memory_order_relaxed);
	(void) herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY);
	herald_turns_pump();
	if (herald_spill_has_files())
		herald_bell_ring();	/* perhaps nobody needs them any more */
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

/* What comes in a failed block is none, and is not followed by another end. */
void
herald_session_statement(void)
{
	bool		is_new;

	/* Most backends listen to nothing, and every statement comes by here. */
	if (!herald_session_is_listener() || IsAbortedTransactionBlockState())
		return;

	session.statement_before = true;
	is_new = note_message();
	if (step(HERALD_SESSION_STATEMENT) != HERALD_SESSION_IDLE)
		return;

	/* A signal that is on its way has nothing more to tell us. */
	if (is_new)
		session.began_at = session.message_at;
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
	HeraldPosition up_to = polled ? queue_end() : session.message_at;

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
		session.own_signal = true;
		herald_signal_self();
	}
	if (!herald_session_is_listener() ||
		(committed && was_idle && !polled && session.awaited == 0))
		return;

	/*
	 * [S1] An empty transaction that fails before it could deliver has used up
	 * its signal.  Take the reasons before the look at the word: a signal that
	 * they stand for would never come.
	 */
	if (!committed)
		(void) herald_reasons_take(&herald_slots[herald_shared_my_slot()].reasons, HERALD_REASONS_NOTIFY);

	if (herald_session_state_is_busy(session.state) || rest() || polled ||
		herald_dispatch_is_behind(up_to))
	{
		session.answer_up_to = herald_session_state_is_busy(session.state) ? HERALD_QUEUE_END : up_to;

		/*
		 * Something of the server's or of another module's fails each time
		 * before we can deliver: the client is better told than kept waiting.
		 */
		if (!committed && was_idle && ++session.failures >= FAILURES_MAX)
			ExitOnAnyError = true;
		session.own_signal = true;
		herald_signal_self();
	}
}

/* Returns the state that we were in. */
static HeraldSessionState
step(HeraldSessionEvent event)
{
	HeraldSessionState before = session.state;

	session.state = herald_session_next(before, event);
	return before;
}

/*
 * Is the client to be left in a failed block?  Before the end of the callbacks
 * the server's state does not tell that from a COMMIT that has failed, or an
 * implicit block; then the empty transaction follows at once.
 */
static bool
may_fail_in_block(void)
{
	return TransactionBlockStatusCode() == 'T';
}

/*
 * Some clients poll with an empty query, or by a call on the fast path, which
 * pass no hook; nor does what fails early.  What is dispatched by then is to be there with the answer, and
 * is not there by itself if we are still waiting for a turn.  The server notes
 * when messages come, but for Sync; what it runs by itself comes without one.
 */
static bool
message_has_come(void)
{
	TimestampTz before = session.message;

	session.message = GetCurrentStatementStartTimestamp();
	return session.message != before;
}

/*
 * True for the first statement of a client's message.  Within one message, which
 * may hold several transactions and may have begun in a block, the client is told
 * nothing, and we are not idle.
 */
static bool
note_message(void)
{
	TimestampTz time = GetCurrentStatementStartTimestamp();

	if (time == session.message_time)
		return false;
	session.message_time = time;
	session.message_at = queue_end();
	return true;
}

/* Everything that has been answered by now is before it. */
static HeraldPosition
queue_end(void)
{
	return atomic_load_explicit(&herald_queue->head, memory_order_seq_cst);
}

static bool
is_pending(void)
{
	HeraldListenerWord *word = herald_wakeup_word(herald_wakeup, herald_shared_my_slot());

	return herald_listener_is_pending(atomic_load(word));
}

/*
 * The server reads its own queue for us in an empty transaction, and it did so before the last ones
 * that went past ours were counted: a position would stand for less than the client
 * has received.  Once more after that; not again and again, if there are more and more.
 */
static bool
must_hear_natively(bool was_idle)
{
	bool		is_behind = session.wants_positions && session.bypasses_at_end != session.bypasses_heard;

	/* This one was for something else, such as invalidations; ours follows. */
	if (was_idle && session.hears_again && notifyInterruptPending)
		return false;
	session.hears_again = is_behind && !(was_idle && session.hears_again);
	return session.hears_again;
}

/* Say in our word that we are idle.  True: there is something to deliver. */
static bool
rest(void)
{
	HeraldListenerWord *word = herald_wakeup_word(herald_wakeup, herald_shared_my_slot());

	/*
	 * An empty transaction that was to deliver and failed before it could has
	 * used the signal up: the word is SIGNALLED still, and nobody will send another.
	 */
	return herald_wakeup_rest(herald_wakeup, herald_shared_my_slot()) ||
		session.awaited != 0 ||
		herald_word_state(atomic_load(word)) == HERALD_LISTENER_SIGNALLED;
}

bool
herald_session_is_idle_transaction(void)
{
	return (session.state == HERALD_SESSION_IDLE || session.state == HERALD_SESSION_HELD) &&
		debug_query_string == NULL && !proc_exit_inprogress;
}

bool
herald_session_take_statement(void)
{
	bool		result = session.statement_before;

	session.statement_before = false;
	return result;
}

HeraldPosition
herald_session_began_at(void)
{
	return herald_session_state_is_busy(session.state) ? session.began_at : 0;
}

HeraldPosition
herald_session_take_answer_up_to(void)
{
	HeraldPosition result = session.answer_up_to;

	session.answer_up_to = 0;
	return result == HERALD_QUEUE_END ? queue_end() : result;
}

void
herald_session_await(HeraldPosition position)
{
	session.awaited = position;
}

HeraldPosition
herald_session_take_awaited(void)
{
	HeraldPosition result = session.awaited;

	session.awaited = 0;
	return result;
}

bool
herald_session_take_own_signal(void)
{
	bool		result = session.own_signal;

	session.own_signal = false;
	return result;
}

HeraldToken
herald_session_position(void)
{
	/* This first: what is committed in between counts as not seen. */
	HeraldToken token = {.bypasses = herald_bypass_count()};

	session.wants_positions = herald_session_is_listener();
	if (session.wants_positions)
	{
		token.bypasses = session.bypasses_heard;
		token.place.position = herald_wakeup_has_read(herald_wakeup, herald_queue, herald_shared_my_slot());
	}
	else
		token.place.position = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	return token;
}

void
herald_session_hears_natively(void)
{
	if (!session.hears_again || notifyInterruptPending)
		return;
	session.position_owed = session.position_owed || session.bypasses_heard != session.bypasses_at_end;
	session.bypasses_heard = session.bypasses_at_end;
}

/* As if there were something to wait for that has come already. */
void
herald_session_owe_position(void)
{
	session.position_owed = true;
	session.awaited = Max(session.awaited, HERALD_ALIGN);
}

bool
herald_session_take_owed_position(void)
{
	bool		result = session.position_owed;

	session.position_owed = false;
	return result;
}

/* It looks in the empty transaction that follows, as if there were something to wait for. */
void
herald_session_note_missed(void)
{
	session.has_missed = true;
	session.awaited = Max(session.awaited, HERALD_ALIGN);
}

void
herald_session_look_for_missed(uint32 bypasses, HeraldChannelSets sets)
{
	if (session.resumed_sets == 0)
		session.resumed_bypasses = bypasses;
	session.resumed_sets |= sets;
	session.awaited = Max(session.awaited, HERALD_ALIGN);
}

bool
herald_session_take_missed(void)
{
	bool		result = session.has_missed;

	if (session.resumed_sets != 0)
	{
		/* The statement has been answered: a cancel request is not for us. */
		HOLD_CANCEL_INTERRUPTS();
		herald_bypass_await_counting();
		RESUME_CANCEL_INTERRUPTS();
		result = result || herald_bypass_since(session.resumed_bypasses, session.resumed_sets);
	}
	session.has_missed = false;
	session.resumed_sets = 0;
	return result;
}
