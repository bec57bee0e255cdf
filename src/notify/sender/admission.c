/*-------------------------------------------------------------------------
 *
 * admission.c
 *	  Reserves a batch: at once, or after a wait as for a lock.
 *
 * While the ring has room, the sender of a batch that is not large reserves without any lock.
 * Other senders queue at a heavyweight lock of the server, as they do on a stock server at the
 * lock of its own NOTIFY: visible in pg_locks, with lock_timeout, cancel requests and
 * log_lock_waits.  The holder of the lock waits for room; meanwhile, new senders queue behind it
 * instead of taking that room.
 *
 * They get room in the order of their arrival, with these exceptions.  A holder that was
 * interrupted, or has logged a message, goes to the end of the queue.  And between two holders
 * new senders do not queue, until the second one has found no room.
 *
 * A sender also waits in two other cases, for at most HERALD_SETTLED_WAIT_MS, because a commit may
 * hang.  First, each session waits until its previous batch is settled.  A sender that lost its
 * CPU between its reservation and the end of its commit delays all notifications after its own;
 * without this wait, senders that notify in a loop would keep the CPU from it.  Second, the
 * sender of a large batch waits, as the lock's holder, until the previous large batch is
 * settled: so another session's notification has few bytes before it, however many sessions
 * send.
 *
 * The lock's holder waits for other transactions' commits; and, to make room, for spill_lock,
 * for the disk, for a file that is being deleted if the disk is full, and for a look at
 * pg_tablespace.  It does not wait for a client: it releases the lock before it serves an
 * interrupt or logs a message, since both may send something to a client that does not read.
 * (The server may send a message while it waits for the lock; then the lock can be granted to a
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
	ResourceOwner owner;		/* of the lock; saving a segment has another one meanwhile */
} Request;

static bool is_large(const Request *request);
static bool reserve(const Request *request);
static bool queue_up(Request *request);
static bool wait_as_holder(Request *request);
static bool wait_for_room(Request *request);
static void serve_interrupts(void *arg);
static void lock(const Request *request);
static void unlock(const Request *request);
static void release_before_report(void *arg);
static bool is_holder(void);


bool
herald_admission_reserve(const HeraldBatch *info, uint64 length, HeraldPosition previous,
						 HeraldPosition *position)
{
	Request		request = {info, length, position, herald_clock_ms(), CurrentResourceOwner};

	herald_settled_wait_before_commit(previous, HERALD_SETTLED_WAIT_MS, serve_interrupts, &request);
	if (herald_shared_is_damaged())
		return false;
	if (!is_large(&request) &&
		!atomic_load_explicit(&herald_control->room_is_awaited, memory_order_relaxed) && reserve(&request))
		return true;
	return queue_up(&request);
}

static bool
is_large(const Request *request)
{
	return request->length > LARGE_BYTES;
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
	lock(request);
	success = wait_as_holder(request);
	unlock(request);
	error_context_stack = before_report.previous;
	return success;
}

static bool
wait_as_holder(Request *request)
{
	if (!is_large(request))
		return wait_for_room(request);
	herald_settled_wait_before_commit(atomic_load_explicit(&herald_control->large_end, memory_order_relaxed),
									  HERALD_SETTLED_WAIT_MS, serve_interrupts, request);
	if (!wait_for_room(request))
		return false;
	atomic_store_explicit(&herald_control->large_end,
						  *request->position + sizeof(HeraldBatchHeader) + request->length,
						  memory_order_relaxed);
	return true;
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

		/* After a log message, or an interrupt. */
		if (!is_holder())
			lock(request);

		/*
		 * Read this before the attempt.  After it, another process may have made the room that
		 * we lacked, and we would wait for the next segment although there is room.
		 */
		oldest_end = herald_queue_oldest_end(herald_queue);
		if (reserve(request))
			return true;
		atomic_store_explicit(&herald_control->room_is_awaited, true, memory_order_relaxed);
		if (herald_spill_make_room(true))
			continue;
		HERALD_STOP_POINT("await-room");
		(void) herald_settled_wait_until(oldest_end, PG_UINT64_MAX);
		serve_interrupts(request);
	}
	return false;
}

/* Without the lock, because an error may have to wait for the client. */
static void
serve_interrupts(void *arg)
{
	if (!INTERRUPTS_PENDING_CONDITION())
		return;
	unlock(arg);
	CHECK_FOR_INTERRUPTS();
}

/*
 * The server limits each wait for the lock by lock_timeout.  As the holder we wait until
 * lock_timeout has passed since herald_admission_reserve() was called.
 */
static void
lock(const Request *request)
{
	LOCKTAG		tag = herald_notify_lock(HERALD_LOCK_ADMISSION);

	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	if (LockTimeout > 0)
		enable_timeout_after(LOCK_TIMEOUT,
							 Max(1, LockTimeout - (int) (herald_clock_ms() - request->begin_ms)));
}

static void
unlock(const Request *request)
{
	LOCKTAG		tag = herald_notify_lock(HERALD_LOCK_ADMISSION);
	ResourceOwner current = CurrentResourceOwner;

	if (!is_holder())
		return;
	if (LockTimeout > 0)
		disable_timeout(LOCK_TIMEOUT, true);
	atomic_store_explicit(&herald_control->room_is_awaited, false, memory_order_relaxed);
	CurrentResourceOwner = request->owner;
	(void) LockRelease(&tag, ExclusiveLock, false);
	CurrentResourceOwner = current;
}

/*
 * Before any message: it may reach a client that does not read.  So an error releases the lock,
 * also one that comes after the server has granted it and before lock() returns.  After another
 * message the process queues again.
 */
static void
release_before_report(void *arg)
{
	unlock(arg);
}

static bool
is_holder(void)
{
	LOCKTAG		tag = herald_notify_lock(HERALD_LOCK_ADMISSION);

	return herald_lock_held_by_me(&tag, ExclusiveLock);
}
