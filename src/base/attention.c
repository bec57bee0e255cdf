/*-------------------------------------------------------------------------
 *
 * attention.c
 *	  Handlers in this backend for signals other than those for notifications.
 *
 * A signal handler could not do this work, so the handlers here run at safe points: an idle
 * backend opens an empty transaction for them, a busy backend runs them at its next statement
 * or its commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/sinval.h"

#include "base/involvement.h"
#include "base/attention.h"
#include "base/shared.h"

static struct
{
	HeraldAttention run;
	void	   *arg;
}			handlers[32];

static bool is_on;

/* Maximum number of consecutive empty transactions that fail. */
#define FAILURES_MAX	10

static bool something_has_come(void);
static void leave_at_exit(int code, Datum arg);


void
herald_attention_to(uint32 reason, HeraldAttention handler, void *arg)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	int			bit = pg_rightmost_one_pos32(reason);

	Assert(IsUnderPostmaster || !IsPostmasterEnvironment);
	handlers[bit].run = handler;
	handlers[bit].arg = arg;
	herald_is_involved = true;
	atomic_fetch_or_explicit(&mine->attends_to, reason, memory_order_relaxed);
	if (is_on)
		return;

	before_shmem_exit(leave_at_exit, (Datum) 0);

	/* [S2] as in herald_session_join(): pairs with herald_signal_reason() */
	atomic_store_explicit(&mine->attends, MyProcPid, memory_order_seq_cst);
	atomic_fetch_and_explicit(&mine->reasons, ~HERALD_REASONS_CATCH_UP, memory_order_seq_cst);
	is_on = true;
}

bool
herald_attention_is_on(void)
{
	return is_on;
}

void
herald_attention_serve(void)
{
	uint32		reasons;

	if (!something_has_come())
		return;

	/*
	 * In a failed block nothing can be done, and no callback reports its end,
	 * to which this statement may lead.
	 */
	if (IsAbortedTransactionBlockState())
	{
		catchupInterruptPending = true;
		return;
	}

	reasons = herald_reasons_take(&herald_slots[herald_shared_my_slot()].reasons,
								  HERALD_REASONS_CATCH_UP);
	while (reasons != 0)
	{
		int			bit = pg_rightmost_one_pos32(reasons);

		reasons &= reasons - 1;

		/*
		 * A reason without a handler was meant for an earlier owner of the
		 * slot.
		 */
		if (handlers[bit].run)
			handlers[bit].run(handlers[bit].arg);
	}
}

void
herald_attention_end_transaction(bool committed)
{
	static int	failures;		/* consecutive */

	/*
	 * The server may have used up the signal when it read its own
	 * invalidations, which does not run the handlers.  But if another
	 * module's code fails in each empty transaction, the reason has to wait
	 * for a statement.
	 */
	failures = committed ? 0 : failures + 1;
	if (failures < FAILURES_MAX && something_has_come())
		catchupInterruptPending = true;
}

static bool
something_has_come(void)
{
	return is_on &&
		(atomic_load_explicit(&herald_slots[herald_shared_my_slot()].reasons, memory_order_relaxed) &
		 HERALD_REASONS_CATCH_UP) != 0;
}

static void
leave_at_exit(int code, Datum arg)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];

	atomic_store_explicit(&mine->attends, 0, memory_order_relaxed);
	atomic_store_explicit(&mine->attends_to, 0, memory_order_relaxed);
	is_on = false;
}
