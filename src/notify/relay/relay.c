/*-------------------------------------------------------------------------
 *
 * relay.c
 *	  The progress of a standby's relay, in shared memory.
 *
 * The relay (workers/relay_worker.c) writes its progress here.  When the server starts the relay again, the relay
 * continues from this progress.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdatomic.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "utils/snapmgr.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/relay/conflict.h"
#include "notify/relay/relay.h"
#include "notify/wal/wal_reader.h"

typedef enum RelayStage
{
	RELAY_NOT_BEGUN,			/* the relay has not begun yet, or this server
								 * has started as a primary */
	RELAY_NEVER_BEGINS,			/* the relay has no background worker */
	RELAY_ACTIVE,
	RELAY_FINISHED
} RelayStage;

struct HeraldRelay
{
	_Atomic int stage;			/* a RelayStage */
	ConditionVariable changed;	/* broadcast when `stage` changes, when the
								 * relay publishes `reached`, or when the
								 * relay is not needed */
	slock_t		lock;			/* protects the fields below */
	XLogRecPtr	read_from;
	HeraldReached reached;
	HeraldRelayFigures figures;
};

/* The argument of a Condition. */
typedef struct Awaited
{
	XLogRecPtr	wal;			/* the place in the WAL that the relay must
								 * reach; InvalidXLogRecPtr: the condition
								 * does not depend on a place */
	uint64		begin_ms;		/* when the wait began (herald_clock_ms()) */
} Awaited;

/* Must the session go on waiting? */
typedef bool (*Condition) (const Awaited *);

static RelayStage first_stage = RELAY_NOT_BEGUN;

static void move_to(RelayStage stage);
static void await_begin(void);
static bool has_not_begun(const Awaited *unused);
static bool is_unknown(const Awaited *awaited);
static HeraldWalCoverage coverage_now(void);
herald_noreturn static void report_conflict(void);
static bool waits_for_end(const Awaited *unused);
static bool is_coming(const Awaited *awaited);
static bool is_not_shown(const Awaited *awaited);
static bool is_before(XLogRecPtr wal);
static bool wait_for_replay(HeraldWait wait, Condition condition, XLogRecPtr wal);
static bool wait_while(HeraldWait wait, Condition condition, XLogRecPtr wal, uint64 end_ms);


Size
herald_relay_shared_size(void)
{
	return sizeof(HeraldRelay);
}

void
herald_relay_shared_init(void)
{
	memset((void *) herald_relay, 0, sizeof(HeraldRelay));
	atomic_init(&herald_relay->stage, first_stage);
	SpinLockInit(&herald_relay->lock);
	ConditionVariableInit(&herald_relay->changed);
}

void
herald_relay_never_begins(void)
{
	first_stage = RELAY_NEVER_BEGINS;
}

void
herald_relay_begin(const HeraldReached *reached, XLogRecPtr read_from)
{
	herald_relay_publish(reached, read_from);
	move_to(RELAY_ACTIVE);
}

void
herald_relay_publish(const HeraldReached *reached, XLogRecPtr read_from)
{
	SpinLockAcquire(&herald_relay->lock);
	herald_relay->reached = *reached;
	herald_relay->read_from = read_from;
	SpinLockRelease(&herald_relay->lock);
	herald_wait_tell(&herald_relay->changed);
}

void
herald_relay_publish_figures(const HeraldRelayFigures *figures)
{
	SpinLockAcquire(&herald_relay->lock);
	herald_relay->figures = *figures;
	SpinLockRelease(&herald_relay->lock);
}

void
herald_relay_is_not_needed(void)
{
	herald_wait_tell(&herald_relay->changed);
}

void
herald_relay_finish(void)
{
	move_to(RELAY_FINISHED);
}

XLogRecPtr
herald_relay_read_from(void)
{
	XLogRecPtr	result;

	SpinLockAcquire(&herald_relay->lock);
	result = herald_relay->read_from;
	SpinLockRelease(&herald_relay->lock);
	return result;
}

bool
herald_relay_reached(HeraldReached *reached)
{
	SpinLockAcquire(&herald_relay->lock);
	*reached = herald_relay->reached;
	SpinLockRelease(&herald_relay->lock);
	return atomic_load(&herald_relay->stage) >= RELAY_ACTIVE;
}

void
herald_relay_figures(HeraldRelayFigures *figures)
{
	SpinLockAcquire(&herald_relay->lock);
	*figures = herald_relay->figures;
	SpinLockRelease(&herald_relay->lock);
}

bool
herald_relay_is_active(void)
{
	return atomic_load(&herald_relay->stage) == RELAY_ACTIVE;
}

void
herald_relay_await_end(void)
{
	HERALD_MAY_WAIT();
	if (unlikely(waits_for_end(NULL)))
		(void) wait_while(HERALD_WAIT_RELAY, waits_for_end, InvalidXLogRecPtr, PG_UINT64_MAX);
}

void
herald_relay_await_evidence(void)
{
	bool		is_late;

	await_begin();
	if (likely(herald_wal_coverage_is_evidence(coverage_now())))
		return;
	InvalidateCatalogSnapshot();	/* so that replay does not wait for this
									 * snapshot during the wait below */
	is_late = !wait_for_replay(HERALD_WAIT_RELAY, is_unknown, InvalidXLogRecPtr);
	if (herald_wal_coverage_is_evidence(coverage_now()))
		return;
	if (!is_late && coverage_now() != HERALD_WAL_UNCOVERED)
		report_conflict();
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("this standby cannot relay notifications"),
			 errdetail("The WAL that it has replayed does not show that the primary runs pg_herald."),
			 errhint("If pg_herald is not in shared_preload_libraries on the primary, add it, and restart the primary.")));
}

bool
herald_relay_await(XLogRecPtr wal)
{
	if (!wait_for_replay(HERALD_WAIT_REPLAY, is_coming, wal))
		return false;
	if (is_before(wal))
		report_conflict();
	return true;
}

bool
herald_relay_await_visible(void)
{
	await_begin();

	/*
	 * A replayed commit is visible a moment before the replay position moves
	 * past the commit record.  So wait until the relay has reached the end of
	 * the record that is being replayed.
	 */
	return !herald_relay_is_active() ||
		wait_for_replay(HERALD_WAIT_REPLAY, is_not_shown, GetCurrentReplayRecPtr(NULL));
}

bool
herald_relay_covers(HeraldPosition place, bool logged)
{
	HeraldReached reached;

	if (!herald_relay_reached(&reached))
		return true;
	if (place < reached.complete_from)
		return false;
	return logged || (!herald_relay_is_active() && place >= reached.place);
}

void
herald_relay_own_setting(void)
{
	SpinLockAcquire(&herald_relay->lock);
	herald_relay->reached.complete_from = Max(herald_relay->reached.complete_from, herald_relay->reached.place);
	SpinLockRelease(&herald_relay->lock);
}

static void
move_to(RelayStage stage)
{
	atomic_store(&herald_relay->stage, stage);
	herald_wait_tell(&herald_relay->changed);
}

static void
await_begin(void)
{
	HERALD_MAY_WAIT();
	if (likely(!has_not_begun(NULL)))
		return;
	if (atomic_load(&herald_relay->stage) == RELAY_NEVER_BEGINS)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("background worker \"pg_herald relay\" cannot run, and without it this standby has no notifications"),
				 errdetail("max_worker_processes (%d) leaves no slot for it.", max_worker_processes),
				 errhint("Increase max_worker_processes, and restart the server.")));
	(void) wait_while(HERALD_WAIT_RELAY, has_not_begun, InvalidXLogRecPtr, PG_UINT64_MAX);
}

static bool
has_not_begun(const Awaited *unused)
{
	return atomic_load(&herald_relay->stage) < RELAY_ACTIVE && RecoveryInProgress();
}

/*
 * Must the session go on waiting for evidence that the primary runs pg_herald?  The session gives up if the WAL shows
 * that the primary runs without pg_herald.  The session also gives up if replay waits at a record, perhaps for this
 * session's query, since the evidence may come only after this record.
 */
static bool
is_unknown(const Awaited *awaited)
{
	HeraldWalCoverage coverage = coverage_now();

	return !herald_wal_coverage_is_evidence(coverage) && coverage != HERALD_WAL_UNCOVERED &&
		!herald_conflict_ends_wait(awaited->begin_ms);
}

static HeraldWalCoverage
coverage_now(void)
{
	HeraldReached reached;

	return herald_relay_is_active() && herald_relay_reached(&reached) ? reached.coverage : HERALD_WAL_COVERED;
}

/* Must the session go on waiting for the end of the relay?  Returns false in recovery, since no session sends then. */
static bool
waits_for_end(const Awaited *unused)
{
	return herald_relay_is_active() && !RecoveryInProgress();
}

/*
 * Must the session go on waiting until the relay has reached awaited->wal?  The session gives up if replay waits at a
 * record before awaited->wal, perhaps for this session's query.
 */
static bool
is_coming(const Awaited *awaited)
{
	return is_before(awaited->wal) &&
		(awaited->wal <= GetXLogReplayRecPtr(NULL) || !herald_conflict_ends_wait(awaited->begin_ms));
}

static void
report_conflict(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("canceling wait for replay due to conflict with recovery"),
			 errdetail("This standby has not yet replayed what the transaction waits for, and its replay waits for queries, perhaps for this one."),
			 errhint("Repeat the transaction. With hot_standby_feedback on the standby there are few conflicts.")));
}

/*
 * Must the session go on waiting until the relay has reached all visible commits?  While replay waits for queries, it
 * is enough that the relay reaches the replay position: the record at which replay waits is not a commit, so all
 * visible commits are before the replay position.
 */
static bool
is_not_shown(const Awaited *awaited)
{
	if (!is_before(awaited->wal))
		return false;
	if (!herald_conflict_exists())
		return true;
	pg_read_barrier();
	return is_before(GetXLogReplayRecPtr(NULL));
}

static bool
is_before(XLogRecPtr wal)
{
	HeraldReached reached;

	return herald_relay_is_active() && herald_relay_reached(&reached) && reached.wal < wal;
}

/* Returns false if the condition is still true after the time that herald_wal_wait_left() allows. */
static bool
wait_for_replay(HeraldWait wait, Condition condition, XLogRecPtr wal)
{
	uint64		begin_ms = herald_clock_ms();
	bool		result = wait_while(wait, condition, wal, begin_ms + herald_wal_wait_left());

	herald_wal_waited(herald_clock_ms() - begin_ms);
	return result;
}

/* Returns false if the condition is still true at end_ms (herald_clock_ms()). */
static bool
wait_while(HeraldWait wait, Condition condition, XLogRecPtr wal, uint64 end_ms)
{
	Awaited		awaited = {wal, herald_clock_ms()};
	uint64		now_ms;
	bool		still;

	HERALD_MAY_WAIT();
	for (;;)
	{
		herald_wait_prepare(wait, &herald_relay->changed);
		still = condition(&awaited);
		now_ms = herald_clock_ms();
		if (!still || now_ms >= end_ms)
			break;
		HERALD_STOP_POINT("await-relay");
		CHECK_FOR_INTERRUPTS();
		herald_wait_sleep(wait, herald_conflict_pause(awaited.begin_ms, now_ms, end_ms));
	}
	herald_wait_end();
	return !still;
}
