/*-------------------------------------------------------------------------
 *
 * transaction.c
 *	  The actions at the end of a transaction, and their order.
 *
 * Before the commit record is written, where errors are still allowed, new channels are
 * entered in the map, and the batch is reserved and filled, in that order: so a transaction that
 * listens to a channel and notifies it receives the notification, and all steps that can take long
 * come before the batch gets its place in the queue.
 *
 * After the commit is visible nothing may fail.  At XACT_EVENT_COMMIT the transaction still
 * holds its locks, and its catalog changes have not been announced to other backends; a
 * listener that is woken now finds the lock taken and the old catalog.  So the batch is
 * finished and dispatched later, when the server releases resources after locks, just before
 * its own AtCommit_Notify().  Then the channels are updated.  Reading comes last, so that
 * nothing arrives after an UNLISTEN.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/resowner.h"

#include "api/reason_names.h"
#include "base/compat.h"
#include "base/involvement.h"
#include "base/attention.h"
#include "base/slow_ends.h"
#include "notify/dispatch/dispatch.h"
#include "notify/listener/deliver.h"
#include "notify/listener/resumption.h"
#include "notify/listener/server_steps.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/anchor.h"
#include "notify/position/bypass.h"
#include "notify/sender/large_transaction.h"
#include "notify/sender/notify.h"
#include "notify/sender/pending.h"
#include "notify/sender/publish.h"
#include "notify/settings/channel_settings.h"
#include "notify/settings/log_setting.h"
#include "transaction.h"

/* The transaction has ended, and at_release() has not been called since. */
static enum
{
	END_NONE,
	END_COMMIT,
	END_ABORT
}			unfinished_end;

static void at_transaction_event(XactEvent event, void *arg);
static void at_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg);
static void at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
									SubTransactionId parent_id, void *arg);
static void count_bypass(void);
static void before_commit(void);
static void before_prepare(void);
static void at_end(bool committed);
static void after_locks(void);
static bool hears_itself(void);
static bool is_listened_to(const HeraldEntry *entry);


void
herald_transaction_register_callbacks(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
	RegisterResourceReleaseCallback(at_release, NULL);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	/*
	 * An error in the middle of the previous end may have prevented the
	 * release.
	 */
	if (unlikely(unfinished_end != END_NONE))
		after_locks();

	if (event == XACT_EVENT_PRE_COMMIT)
		herald_run_announce();
	if (!herald_is_involved)
	{
		if (event == XACT_EVENT_COMMIT && herald_bypass_is_own())
		{
			herald_bypass_commit();
			herald_bypass_forget();
		}
		herald_is_committing = event == XACT_EVENT_PRE_COMMIT ||
			event == XACT_EVENT_PRE_PREPARE;
		return;
	}

	herald_is_committing = false;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			before_commit();
			herald_is_committing = true;
			break;
		case XACT_EVENT_COMMIT:
			count_bypass();
			at_end(true);
			break;
		case XACT_EVENT_ABORT:
			at_end(false);
			break;
		case XACT_EVENT_PRE_PREPARE:
			before_prepare();
			herald_is_committing = true;
			break;
		case XACT_EVENT_PREPARE:
			at_end(true);		/* with nothing reserved: see before_prepare() */
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* the leader does this */
	}
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
						SubTransactionId parent_id, void *arg)
{
	if (!herald_is_involved)
		return;

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			herald_pending_subcommit();
			herald_subscriptions_subcommit();
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			herald_pending_subabort();
			herald_subscriptions_subabort();
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			break;
	}
}

/*
 * If this transaction has bypassed our queue, count it.  Resumed channels are checked before
 * that: a session that begins to listen receives its own transaction's notifications.
 */
static void
count_bypass(void)
{
	bool		is_own = herald_bypass_is_own();

	herald_subscriptions_look_for_missed(is_own);
	if (is_own)
		herald_bypass_commit();
}

/*
 * A function can be called without passing any hook (by the fast path, or as a simple
 * expression of PL/pgSQL), and can notify: then the transaction is not idle.
 */
static void
before_commit(void)
{
	herald_reason_names_attend();
	herald_attention_serve();
	if (herald_session_is_idle_transaction())
	{
		if (herald_pending_count() == 0 && !TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
			!herald_log_setting_is_noted())
		{
			herald_deliver();
			return;
		}

		/*
		 * Or another module's callback has notified, or written something for
		 * which others would wait with us until the client has read, in an
		 * empty transaction that was meant to deliver and has used up our
		 * signal.  Treat this as a statement: then the delivery follows.
		 */
		herald_session_statement();
	}

	/*
	 * What may wait for other sessions comes before everything for which they
	 * wait.
	 */
	if (herald_pending_count() > 0 || herald_bypass_has_unseen() || herald_log_setting_is_noted())
		herald_slow_ends_do();
	if (herald_subscriptions_any_to_drop())
		herald_deliver_earlier();

	/*
	 * A change of settings waits for commits, so it comes before what commits
	 * wait for.
	 */
	herald_log_setting_write();

	/*
	 * If the server will take long for its channels, its files or its queue,
	 * others need not wait for us.
	 */
	herald_notify_choose_queue(herald_pending_count() > 0 &&
							   (herald_server_steps_take_long() || herald_slow_ends_has_syncs() ||
								(herald_subscriptions_are_first() && herald_slow_ends_has_long_queue())));
	herald_subscriptions_prepare();

	/*
	 * The reservation comes last: from then on all later batches wait for
	 * this commit.
	 */
	herald_publish_reserve();
}

/* The server itself refuses pending LISTENs, but does not know our NOTIFYs. */
static void
before_prepare(void)
{
	if (herald_pending_count() > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")));
	if (herald_log_setting_any_change())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has changed settings of channels"),
				 errdetail("Until it is committed, all notifications of the database would be logged.")));
}

/* The end is visible to other sessions; locks are still held. */
static void
at_end(bool committed)
{
	if (!committed)
		herald_dispatch_cancel_wait();

	/*
	 * Before the server closes the transaction's open files; and as long as
	 * its batch is not finished, no other process deletes the file.
	 */
	herald_large_transaction_release(committed);
	unfinished_end = committed ? END_COMMIT : END_ABORT;
}

/*
 * The server calls this for each resource owner, in each phase; all owners of a transaction go
 * through the phases together.
 */
static void
at_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (unfinished_end != END_NONE && phase == RESOURCE_RELEASE_AFTER_LOCKS && is_top_level)
		after_locks();
}

static void
after_locks(void)
{
	bool		committed = unfinished_end == END_COMMIT;
	bool		finished;
	HeraldPosition end;

	unfinished_end = END_NONE;

	/* First: a change of settings waits for commits, not for their delivery. */
	herald_channel_settings_end();
	finished = herald_publish_finish(committed, &end);
	if (committed)
		herald_subscriptions_commit();
	else
		herald_subscriptions_abort();
	herald_resumption_end_transaction();
	if (finished && committed && hears_itself())
		herald_session_owed()->own_batch = end;
	herald_pending_reset();
	herald_notify_reset();
	herald_log_setting_reset();
	herald_large_transaction_end();
	herald_session_end_transaction(committed);
	herald_attention_end_transaction(committed);
	herald_is_involved = herald_session_is_listener() || herald_attention_is_on();
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
