/*-------------------------------------------------------------------------
 *
 * signal.c
 *	  The only place from which backends are signalled.
 *
 * The server's own PROCSIG_NOTIFY_INTERRUPT makes an idle backend that listens to any channel
 * run an empty transaction, at whose commit we are called; a busy backend runs it before it
 * sends ReadyForQuery.
 *
 * For a backend that may not listen there is PROCSIG_CATCHUP_INTERRUPT, with which the server
 * makes an idle backend read the server's invalidations: in an empty transaction again, but
 * nothing is flushed to the client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "miscadmin.h"
#include "storage/sinval.h"

#include "base/compat.h"
#include "base/shared.h"
#include "base/signal.h"
#include "base/waits.h"
#include "core/stop_point.h"

bool
herald_signal_notifications(uint32 slot, void *arg)
{
	HeraldSlot *listener = &herald_slots[slot];
	bool		is_first;
	pid_t		pid;

	HERALD_HOLD_POINT("turn-handed-out");
	is_first = herald_reasons_add(&listener->reasons, HERALD_REASON_NOTIFICATIONS,
								  HERALD_REASONS_NOTIFY);
	HERALD_HOLD_POINT("reason-added");

	/*
	 * [S2] Load the slot's pid only now: pairs with herald_session_join().
	 * Either the slot's new owner clears our bit, or we see the new owner's
	 * pid and send it the signal that goes with the bit.
	 */
	pid = atomic_load_explicit(&listener->pid, memory_order_seq_cst);

	if (is_first && pid == MyProcPid)
		herald_signal_self();
	else if (is_first && pid != 0)
	{
		/*
		 * If that backend has exited meanwhile, it has returned its turn.  If
		 * its slot has a new owner, that backend runs an unnecessary empty
		 * transaction.
		 */
		(void) herald_signal_slot(pid, PROCSIG_NOTIFY_INTERRUPT, slot);
		herald_shared_count(HERALD_COUNT_SIGNALS_SENT, 1);
	}

	/*
	 * A backend can be busy before any of our hooks has run: parse analysis,
	 * for example, locks tables, and a Bind without a Sync leaves a
	 * transaction open.  The same holds for a backend that was signalled long
	 * ago.  The result is a hint: the wait may be over already.
	 */
	return pid == MyProcPid ||
		!herald_proc_waits_elsewhere(atomic_load_explicit(&listener->process, memory_order_relaxed),
									 herald_wait(HERALD_WAIT_NOTIFICATION));
}

bool
herald_signal_idle(uint32 slot, uint64 word)
{
	if (herald_word_state(word) != HERALD_LISTENER_IDLE ||
		(atomic_load(&herald_slots[slot].reasons) & HERALD_REASONS_NOTIFY) != 0)
		return false;
	(void) herald_signal_notifications(slot, NULL);
	return true;
}

bool
herald_signal_reason(uint32 slot, uint32 reason)
{
	HeraldSlot *target = &herald_slots[slot];
	pid_t		pid;

	if (herald_reasons_add(&target->reasons, reason, HERALD_REASONS_CATCH_UP))
	{
		/* [S2] as above; pairs with herald_attention_to() */
		pid = atomic_load_explicit(&target->attends, memory_order_seq_cst);
		if (pid == MyProcPid)
			catchupInterruptPending = true;
		else if (pid != 0)
		{
			(void) herald_signal_slot(pid, PROCSIG_CATCHUP_INTERRUPT, slot);
			herald_shared_count(HERALD_COUNT_SIGNALS_SENT, 1);
		}
	}
	return atomic_load_explicit(&target->attends, memory_order_relaxed) != 0;
}

void
herald_signal_self(void)
{
	notifyInterruptPending = true;
}
