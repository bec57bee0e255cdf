/*-------------------------------------------------------------------------
 *
 * answer_first.c
 *	  In calm times the sender's client is answered before listeners are woken.
 *
 * Who has been woken wants a CPU at once, and so does the client of the
 * backend that woke it, which has not even been sent its answer.  A commit
 * must not take longer because somebody listens, so the answer goes first.
 * The server has no hook after it; but it sends the answer by a table of
 * functions which anybody may replace (parallel workers do), so ours stands in
 * for one call of flush().
 *
 * When notifications come one after the other it is better the other way
 * round: the later the next one is sent, the more a listener finds when it
 * wakes up.
 *
 * Nothing depends on the answer: if the client does not read it, the watchdog
 * wakes whom we owe it to [W2]; if there is none, the answer has to wait.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "libpq/libpq.h"
#include "storage/ipc.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"

#include "dispatch/answer_first.h"
#include "dispatch/dispatch.h"
#include "dispatch/watchdog.h"
#include "shared.h"

/* It is calm when the server's last commit with notifications was so long ago. */
#define CALM_US			1000

static struct
{
	const PQcommMethods *replaced;	/* the server's functions; NULL: they are in place */
	PQcommMethods ours;
	bool		exit_registered;
}			answer;

static bool is_calm(TimestampTz committed_at);
static int	flush_and_wake(void);
static void put_back(void);
static void wake_at_exit(int code, Datum arg);


/*
 * Inside a procedure that commits there is no answer yet, and a portal is active.
 */
bool
herald_answer_first(TimestampTz committed_at)
{
	if (!is_calm(committed_at) || whereToSendOutput != DestRemote || ActivePortal != NULL ||
		!herald_watchdog_runs())
		return false;

	if (!answer.exit_registered)
	{
		before_shmem_exit(wake_at_exit, (Datum) 0);
		answer.exit_registered = true;
	}
	if (answer.replaced == NULL)
	{
		answer.replaced = PqCommMethods;
		answer.ours = *PqCommMethods;
		answer.ours.flush = flush_and_wake;
		PqCommMethods = &answer.ours;
	}

	/* No turn is out yet that would keep it awake. */
	herald_watchdog_alert();
	return true;
}

bool
herald_answer_first_is_owed(void)
{
	return answer.replaced != NULL;
}

void
herald_answer_first_overdue(void)
{
	if (herald_answer_first_is_owed())
	{
		put_back();
		herald_dispatch_pump();
	}
}

/*
 * Two that look at the same time may both find it calm: no harm.  Under load
 * most leave the time as it is, and with it the cache line.
 */
static bool
is_calm(TimestampTz committed_at)
{
	int64		before = atomic_load_explicit(&herald_control->last_commit, memory_order_relaxed);

	if (committed_at - before < CALM_US / 10)
		return false;
	atomic_store_explicit(&herald_control->last_commit, committed_at, memory_order_relaxed);
	if (committed_at - before <= CALM_US)
		return false;
	atomic_store_explicit(&herald_control->calm_commit, committed_at, memory_order_relaxed);
	return true;
}

bool
herald_answer_first_was_calm(TimestampTz committed_at)
{
	return committed_at == atomic_load_explicit(&herald_control->calm_commit,
												memory_order_relaxed);
}

static int
flush_and_wake(void)
{
	int			result;

	put_back();
	result = PqCommMethods->flush();
	herald_dispatch_pump();
	return result;
}

static void
put_back(void)
{
	PqCommMethods = answer.replaced;
	answer.replaced = NULL;
}

static void
wake_at_exit(int code, Datum arg)
{
	herald_answer_first_overdue();
}
