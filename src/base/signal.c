/*-------------------------------------------------------------------------
 *
 * signal.c
 *	  The one place from which backends are signalled.
 *
 * The server's own PROCSIG_NOTIFY_INTERRUPT makes an idle backend that listens
 * to anything run an empty transaction, at whose commit we are called; a busy
 * one runs it before it tells its client that it is ready for the next query.
 *
 * For a backend that may not listen there is PROCSIG_CATCHUP_INTERRUPT, by which the
 * server has an idle backend read its own invalidations: in an empty
 * transaction again, but nothing is sent to the client.
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
	 * [S2] Only now look whose slot it is: pairs with herald_session_join().
	 * Either the slot's new owner clears our bit, or we see his pid, and he
	 * gets the signal that goes with it.
	 */
	pid = atomic_load_explicit(&listener->pid, memory_order_seq_cst);

	if (is_first && pid == MyProcPid)
		herald_signal_self();
	else if (is_first && pid != 0)
	{
		/*
		 * If that backend is gone by now it has given back its turn, and if
		 * its slot has a new owner that one runs an empty transaction more.
		 */
		(void) herald_signal_slot(pid, PROCSIG_NOTIFY_INTERRUPT, slot);
		herald_shared_count(HERALD_COUNT_SIGNALS_SENT, 1);
	}

	/*
	 * A backend can be busy before any hook has told us: parse analysis, for one,
	 * locks tables, and a Bind without a Sync leaves a transaction open.  So can one
	 * that somebody has signalled long ago.  A hint: it may be over by now.
	 */
	return pid == MyProcPid ||
		!herald_proc_waits_elsewhere(atomic_load_explicit(&listener->process, memory_order_relaxed),
									 herald_wait(HERALD_WAIT_NOTIFICATION));
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
