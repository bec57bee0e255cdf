/*-------------------------------------------------------------------------
 *
 * admission.c
 *	  Reserves a batch: at once, or after a wait as for a lock.
 *
 * While the ring has room, a sender reserves without any lock.  Otherwise senders queue at a
 * heavyweight lock of the server, as they do on a stock server at the lock of its own NOTIFY:
 * visible in pg_locks, with lock_timeout, cancel requests and log_lock_waits.  The holder of the
 * lock waits for room; meanwhile, and as long as others wait for the lock, new senders queue
 * behind them instead of taking that room.  So senders get room in the order of their arrival,
 * except that a holder that was interrupted, or has logged a message, goes to the end of the
 * queue.
 *
 * A sender also waits in two other cases, for at most HERALD_SETTLED_WAIT_MS, because a commit may
 * hang.  First, a session with several transactions in one message of its client, such as a loop
 * on the server, waits until its previous batch is settled.  A sender that lost its CPU between
 * its reservation and the end of its commit delays all notifications after its own; without this
 * wait, senders that notify in a loop would keep the CPU from it.  Second, the sender of a large
 * batch waits until the previous large batch is settled: so another session's notification has
 * few bytes before it, however many sessions send.  Senders of large batches queue at a lock of
 * their own, so that at most one of them is in the queue for room.
 *
 * A holder of these locks waits for other transactions' commits; and, to make room, for
 * spill_lock, for the disk, for a file that is being deleted if the disk is full, and for a look
 * at pg_tablespace.  It does not wait for a client: it releases the locks before it serves an
 * interrupt or logs a message, since both may send something to a client that does not read.
 * (The server may send a message while it waits for a lock; then the lock can be granted to a
 * process that waits for its client, as on a stock server the lock of NOTIFY can.)
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/resowner.h"
#include "utils/timeout.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/notify_locks.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/dispatch/dispatch.h"
#include "notify/sender/admission.h"
#include "notify/storage/spill.h"

/* A batch with more bytes of entries is large. */
#define LARGE_BYTES		((uint64) 32 * 1024)

/* The arguments of herald_admission_reserve(), and when it was called. */
typedef struct Request
{
	const HeraldBatch *info;
	uint64		length;
	HeraldPosition *position;
	uint64		begin_ms;		/* for lock_timeout */
	ResourceOwner owner;		/* of the lock; saving a segment has another
								 * one meanwhile */
} Request;

static bool is_large(const Request *request);
static bool reserve_at_once(const Request *request);
static bool reserve(const Request *request);
static bool queue_up(Request *request);
static void wait_for_large_batch(Request *request);
static bool wait_for_room(Request *request);
static void serve_interrupts(void *arg);
static void lock_room(const Request *request);
static void lock(HeraldNotifyLock number);
static void unlock_all(const Request *request);
static void unlock(HeraldNotifyLock number);
static bool has_waiters(HeraldNotifyLock number);
static void release_before_report(void *arg);
static bool is_holder(HeraldNotifyLock number);


bool
herald_admission_reserve(const HeraldBatch *info, uint64 length, HeraldPosition previous,
						 HeraldPosition *position)
{
	Request		request = {info, length, position, herald_clock_ms(), CurrentResourceOwner};

	herald_dispatch_wait_before_commit(previous, HERALD_SETTLED_WAIT_MS, serve_interrupts, &request);
	if (herald_shared_is_damaged())
		return false;
	return (!is_large(&request) && reserve_at_once(&request)) || queue_up(&request);
}

static bool
is_large(const Request *request)
{
	return request->length > LARGE_BYTES;
}

/*
 * The holder of the lock for room sets room_is_awaited when it finds no room, and clears it when it releases the lock
 * and no one waits.  If it stays set because the last one that waited was cancelled, the next sender takes the lock,
 * finds room or waits for it, and clears it.
 */
static bool
reserve_at_once(const Request *request)
{
	return !atomic_load_explicit(&herald_control->room_is_awaited, memory_order_relaxed) && reserve(request);
}

static bool
reserve(const Request *request)
{
	return herald_queue_reserve(herald_queue, request->info, request->length, request->position);
}

static bool
queue_up(Request *request)
{
	bool		success;
	ErrorContextCallback before_report = {
		.previous = error_context_stack,
		.callback = release_before_report,
		.arg = request,
	};

	HERALD_STOP_POINT("publish-no-room");
	error_context_stack = &before_report;
	if (is_large(request))
		wait_for_large_batch(request);
	success = (is_large(request) && reserve_at_once(request)) || wait_for_room(request);
	if (success && is_large(request))
		atomic_store_explicit(&herald_control->large_end,
							  *request->position + sizeof(HeraldBatchHeader) + request->length,
							  memory_order_relaxed);
	unlock_all(request);
	error_context_stack = before_report.previous;
	return success;
}

/* An interrupt that is served meanwhile releases the lock: then one more large batch may be unsettled, at most. */
static void
wait_for_large_batch(Request *request)
{
	lock(HERALD_LOCK_LARGE);
	herald_dispatch_wait_before_commit(atomic_load_explicit(&herald_control->large_end, memory_order_relaxed),
									   HERALD_SETTLED_WAIT_MS, serve_interrupts, request);
}

/*
 * False: the queue is damaged.  Only the oldest segment can be recycled, and not before it is
 * settled: so wait for that.  Senders that come meanwhile queue behind us.
 */
static bool
wait_for_room(Request *request)
{
	while (!herald_shared_is_damaged())
	{
		HeraldPosition oldest_end;

		/* At first, and after a log message or an interrupt. */
		if (is_large(request))
			lock(HERALD_LOCK_LARGE);
		lock_room(request);

		/*
		 * Read this before the attempt.  After it, another process may have
		 * made the room that we lacked, and we would wait for the next
		 * segment although there is room.
		 */
		oldest_end = herald_queue_oldest_end(herald_queue);
		if (reserve(request))
			return true;
		atomic_store_explicit(&herald_control->room_is_awaited, true, memory_order_relaxed);
		if (herald_spill_make_room(true))
			continue;
		HERALD_STOP_POINT("await-room");

		/*
		 * We dispatch meanwhile, and sleep only while nothing can be
		 * dispatched.
		 */
		(void) herald_dispatch_wait_until(oldest_end, PG_UINT64_MAX);
		serve_interrupts(request);
	}
	return false;
}

/* Without the locks, because an error may have to wait for the client. */
static void
serve_interrupts(void *arg)
{
	if (!INTERRUPTS_PENDING_CONDITION())
		return;
	unlock_all(arg);
	CHECK_FOR_INTERRUPTS();
}

/*
 * The server limits each wait for the lock by lock_timeout.  As the holder we wait until
 * lock_timeout has passed since herald_admission_reserve() was called.
 */
static void
lock_room(const Request *request)
{
	if (is_holder(HERALD_LOCK_ROOM))
		return;
	lock(HERALD_LOCK_ROOM);
	if (LockTimeout > 0)
		enable_timeout_after(LOCK_TIMEOUT,
							 Max(1, LockTimeout - (int) (herald_clock_ms() - request->begin_ms)));
}

/* Unless we hold it. */
static void
lock(HeraldNotifyLock number)
{
	LOCKTAG		tag = herald_notify_lock(number);

	HERALD_MAY_WAIT();
	if (!is_holder(number))
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* Others that wait for the lock come before those that do not wait yet. */
static void
unlock_all(const Request *request)
{
	ResourceOwner current = CurrentResourceOwner;

	CurrentResourceOwner = request->owner;
	if (is_holder(HERALD_LOCK_ROOM))
	{
		if (LockTimeout > 0)
			disable_timeout(LOCK_TIMEOUT, true);
		if (!has_waiters(HERALD_LOCK_ROOM))
			atomic_store_explicit(&herald_control->room_is_awaited, false, memory_order_relaxed);
		unlock(HERALD_LOCK_ROOM);
	}
	if (is_holder(HERALD_LOCK_LARGE))
		unlock(HERALD_LOCK_LARGE);
	CurrentResourceOwner = current;
}

static void
unlock(HeraldNotifyLock number)
{
	LOCKTAG		tag = herald_notify_lock(number);

	(void) LockRelease(&tag, ExclusiveLock, false);
}

static bool
has_waiters(HeraldNotifyLock number)
{
	LOCKTAG		tag = herald_notify_lock(number);

	return LockHasWaiters(&tag, ExclusiveLock, false);
}

/*
 * Before any message: it may reach a client that does not read.  So an error releases the locks,
 * also one that comes after the server has granted one and before lock() returns.  After another
 * message the process queues again.
 */
static void
release_before_report(void *arg)
{
	unlock_all(arg);
}

static bool
is_holder(HeraldNotifyLock number)
{
	LOCKTAG		tag = herald_notify_lock(number);

	return herald_lock_held_by_me(&tag, ExclusiveLock);
}
