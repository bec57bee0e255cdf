/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  What happens at the ends of transactions, in which order.
 *
 * Before the commit record is written, where errors are still allowed, new
 * channels are entered in the map and the batch is reserved and filled, in
 * that order, so that a transaction which listens to what it notifies hears
 * itself; its invalidations go into their queue last.  After the commit is
 * visible, where nothing may fail, the channels are settled first, so that
 * nothing arrives after an UNLISTEN; then the batch is finished and dispatched.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/tablecmds.h"

#include "api/reasons.h"
#include "cache/store.h"
#include "dispatch/answer_first.h"
#include "dispatch/attention.h"
#include "dispatch/dispatch.h"
#include "invalidation/invalidate.h"
#include "listener/deliver.h"
#include "listener/session.h"
#include "listener/subscriptions.h"
#include "queue/spill.h"
#include "sender/overflow.h"
#include "sender/pending.h"
#include "sender/publish.h"
#include "transaction.h"

bool		herald_transaction_is_ours;
bool		herald_transaction_is_committing;
bool		herald_transaction_is_preparing;

static void at_transaction_event(XactEvent event, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
									SubTransactionId parent_id, void *arg);
static void before_commit(void);
static void do_on_commit_actions(void);
static void before_prepare(void);
static void after_end(bool committed);
static bool hears_itself(void);
static bool is_listened_to(const HeraldEntry *entry);


void
herald_transaction_register_callbacks(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	herald_transaction_is_preparing = event == XACT_EVENT_PRE_PREPARE;
	if (!herald_transaction_is_ours)
	{
		herald_transaction_is_committing = event == XACT_EVENT_PRE_COMMIT;
		return;
	}

	herald_transaction_is_committing = false;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			before_commit();
			herald_transaction_is_committing = true;
			break;
		case XACT_EVENT_COMMIT:
			herald_store_commit();
			after_end(true);
			break;
		case XACT_EVENT_ABORT:
			herald_store_abort();
			after_end(false);
			break;
		case XACT_EVENT_PRE_PREPARE:
			before_prepare();
			break;
		case XACT_EVENT_PREPARE:
			herald_store_abort();	/* its changes may be rolled back yet */
			after_end(true);	/* with nothing reserved: see before_prepare() */
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* the leader's business */
	}
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
						SubTransactionId parent_id, void *arg)
{
	int			level;

	if (!herald_transaction_is_ours)
		return;

	level = GetCurrentTransactionNestLevel();
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			herald_pending_subcommit(level);
			herald_subscriptions_subcommit(level);
			herald_invalidate_subcommit(level);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			herald_pending_subabort(level);
			herald_subscriptions_subabort(level);
			herald_invalidate_subabort(level);
			herald_store_abort();
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/*
 * A function can be called without passing any hook (by the fast path, or as a
 * simple expression of PL/pgSQL), and notify: that transaction is not idle.
 */
static void
before_commit(void)
{
	herald_reasons_attend();
	herald_attention_serve();
	if (herald_session_is_idle_transaction())
	{
		if (herald_pending_count() == 0 && !herald_invalidate_any_pending())
		{
			herald_deliver();
			return;
		}

		/*
		 * Or another module's callback has done it, in a transaction that was to
		 * deliver, and has used our signal up: as after a statement, that follows.
		 */
		herald_session_statement();
	}
	if (herald_pending_count() > 0 || herald_invalidate_any_pending())
		do_on_commit_actions();
	herald_subscriptions_prepare();
	herald_publish_reserve();
	herald_invalidate_publish();
}

/*
 * What the server does for ON COMMIT, to tables that it empties or drops, can
 * wait for somebody's lock.  It comes after our callback; but once we have our
 * place in the log everybody would wait with us.  So it comes before that, and
 * the server finds nothing left to do: the flag stands for having touched
 * temporary tables.
 */
static void
do_on_commit_actions(void)
{
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) == 0)
		return;
	PreCommit_on_commit_actions();
	MyXactFlags &= ~(int) XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
}

/* The server refuses pending LISTENs itself; it does not know our NOTIFYs. */
static void
before_prepare(void)
{
	if (herald_pending_count() > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")));
	if (herald_invalidate_any_pending())
		herald_invalidate_refuse_prepare();
}

static void
after_end(bool committed)
{
	HeraldPosition end;

	herald_invalidate_end();
	if (committed)
		herald_subscriptions_commit();
	else
	{
		herald_dispatch_cancel_wait();
		herald_spill_end_wait();
		herald_subscriptions_abort();

		/* As long as its batch is not finished nobody else deletes the file. */
		herald_overflow_end(false);
	}

	if (herald_publish_finish(committed, &end) && committed && hears_itself())
		herald_deliver_await(end);
	herald_pending_reset();
	herald_overflow_end(committed);
	herald_session_end_transaction(committed);
	herald_attention_end_transaction(committed);
	herald_transaction_is_ours = herald_session_is_listener() || herald_answer_first_is_owed() ||
		herald_attention_is_on();
}

/* Does this backend listen to a channel that its transaction has notified? */
static bool
hears_itself(void)
{
	return herald_session_is_listener() && herald_publish_concerns(is_listened_to);
}

static bool
is_listened_to(const HeraldEntry *entry)
{
	return herald_subscriptions_include(entry, PG_UINT64_MAX);
}
