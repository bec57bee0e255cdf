/*-------------------------------------------------------------------------
 *
 * armed_points.c
 *	  Arms stop points from SQL, and performs the action when a process reaches one.
 *
 * Only in a build for tests (make STOP_POINTS=1).  The functions are in no
 * extension script; a test creates them for itself (test/py/helpers/faults.py).
 *
 * A process that waits polls: it may be in a critical section, or may need its latch for other
 * purposes.
 *
 * This build also enforces two rules of docs/internals/LOCKS.md: it stops the server when a message
 * is about to be sent to a client under a lock of pg_herald, and when a wait may begin under a lock.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/pmsignal.h"
#include "storage/spin.h"
#include "utils/builtins.h"

#include "base/compat.h"
#include "base/notify_locks.h"
#include "base/outbox.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/waits.h"
#include "testing/armed_points.h"
#include "testing/points_link.h"

PG_FUNCTION_INFO_V1(herald_stop_arm);
PG_FUNCTION_INFO_V1(herald_stop_release);
PG_FUNCTION_INFO_V1(herald_stop_waiter);
PG_FUNCTION_INFO_V1(herald_stop_armed);

#define ARMED_MAX		32
#define WAITERS_MAX		64
#define POLL_US			500
#define MORE_LOCKS_MAX	4

typedef enum Action
{
	ACTION_NONE,
	ACTION_WAIT,				/* until it is released */
	ACTION_ERROR,				/* throw one */
	ACTION_MESSAGE,				/* send one to the client */
	ACTION_CANCEL,				/* as by pg_cancel_backend() on itself */
	ACTION_TERMINATE,			/* as by pg_terminate_backend() */
	ACTION_KILL,				/* kill -9 */
	ACTION_LOCK,				/* take the lock of the server's NOTIFY */
	ACTION_LWLOCK				/* take an LWLock of the server's */
} Action;

static const char *const action_names[] = {
	"none", "wait", "error", "message", "cancel", "terminate", "kill", "lock", "lwlock"
};

typedef struct Armed
{
	char		name[NAMEDATALEN];
	Action		action;
	int			pid;			/* for this process only; 0: for any */
	int			times;			/* number of times left; 0: this entry is free */
} Armed;

typedef struct Waiter
{
	char		name[NAMEDATALEN];
	int			pid;			/* 0: this entry is free */
	bool		released;
} Waiter;

struct HeraldStopPoints
{
	slock_t		lock;
	_Atomic uint32_t armed_count;	/* checked first, because that is cheap */
	Armed		armed[ARMED_MAX];
	Waiter		waiters[WAITERS_MAX];
};

HeraldStopPoints *herald_stop_points;

static emit_log_hook_type prev_emit_log_hook;

/* Locks of other libraries. */
static struct
{
	LWLock	   *lock;
	const char *name;
}			more[MORE_LOCKS_MAX];
static int	more_locks;

static int	try_locks_held;		/* number of the queue's try-locks that this
								 * process holds */
static bool is_reporting;		/* that a rule is broken */

static void check_message(ErrorData *error);
static const char *lock_held(void);
static const char *lock_held_at_wait(void);
static void lock_native_queue(void);
static Action take(const char *name, int *waiter);
static int	add_waiter(const char *name);
static void await_release(int waiter, bool serves_interrupts);
static void remove_waiter(int code, Datum waiter);
static Action find_action(const char *name);


Size
herald_stop_points_shared_size(void)
{
	return sizeof(HeraldStopPoints);
}

void
herald_stop_points_shared_init(void)
{
	static const HeraldStopPointsLink link = {herald_stop_point, herald_stop_check_wait, herald_stop_add_lock};

	*(const HeraldStopPointsLink **) find_rendezvous_variable(HERALD_STOP_POINTS_LINK) = &link;
	more_locks = 0;
	memset((void *) herald_stop_points, 0, sizeof(HeraldStopPoints));
	SpinLockInit(&herald_stop_points->lock);
	if (emit_log_hook != check_message)
	{
		prev_emit_log_hook = emit_log_hook;
		emit_log_hook = check_message;
	}
}

void
herald_stop_add_lock(void *lock, const char *name)
{
	if (more_locks == MORE_LOCKS_MAX)
		elog(FATAL, "more than %d locks of other libraries", MORE_LOCKS_MAX);
	more[more_locks].lock = lock;
	more[more_locks].name = name;
	more_locks++;
}

void
herald_stop_try_lock(bool is_held)
{
	try_locks_held += is_held ? 1 : -1;
}

/*
 * The server calls this before it sends a message to the client.  If the client does not read,
 * this process waits, and with it all processes that need the lock.  The hook sees only
 * messages that are logged, so the tests log everything.
 */
static void
check_message(ErrorData *error)
{
	bool		is_sent = error->output_to_client && !herald_outbox_is_closed();
	const char *lock = is_sent && !is_reporting ? lock_held() : NULL;

	if (lock != NULL)
	{
		char		message[256];	/* elog() reuses the memory of the first
									 * message */

		is_reporting = true;
		strlcpy(message, error->message ? error->message : "", sizeof(message));
		elog(PANIC, "a message is sent to the client under %s: %s", lock, message);
	}
	if (prev_emit_log_hook)
		prev_emit_log_hook(error);
}

/* A lock of pg_herald that this process holds, or NULL. */
static const char *
lock_held(void)
{
	if (herald_control == NULL)
		return NULL;
	if (try_locks_held > 0)
		return "the dispatch lock";
	if (LWLockHeldByMe(herald_control->spill_lock))
		return "spill_lock";
	if (LWLockHeldByMe(herald_control->deletion_lock))
		return "deletion_lock";
	if (LWLockHeldByMe(herald_control->scan_lock))
		return "scan_lock";
	if (LWLockHeldByMe(herald_control->reset_lock))
		return "reset_lock";
	for (int i = 0; i < more_locks; i++)
		if (LWLockHeldByMe(more[i].lock))
			return more[i].name;
	if (LWLockHeldByMe(herald_control->reasons_lock))
		return "reasons_lock";

	/*
	 * The locks of dshash and dsa are anywhere in the memory that we gave
	 * them.
	 */
	if (LWLockAnyHeldByMe((LWLock *) herald_channel_area,
						  (int) ((Size) herald_channel_memory_kb * 1024 / sizeof(uint32)), sizeof(uint32)))
		return "a lock of the channel map";
	return NULL;
}

/* HERALD_MAY_WAIT() */
void
herald_stop_check_wait(const char *file, const char *function)
{
	const char *lock = herald_control != NULL ? lock_held_at_wait() : NULL;

	if (lock == NULL)
		return;
	is_reporting = true;
	elog(PANIC, "%s() in %s may wait under %s", function, file, lock);
}

/* A lock under which this process must not wait, or NULL. */
static const char *
lock_held_at_wait(void)
{
	LOCKTAG		tag = herald_notify_lock(HERALD_LOCK_SERVER);

	if (lock_held() != NULL)
		return lock_held();
	if (herald_lock_held_by_me(&tag, AccessExclusiveLock))
		return "the lock of the server's NOTIFY";

	/*
	 * The server does not tell which LWLocks are held, but each of them holds
	 * off interrupts.
	 */
	return InterruptHoldoffCount > 0 ? "an LWLock, or something else that holds off interrupts" : NULL;
}

static void
lock_native_queue(void)
{
	LOCKTAG		tag = herald_notify_lock(HERALD_LOCK_SERVER);

	(void) LockAcquire(&tag, AccessExclusiveLock, false, false);
}

void
herald_stop_point(const char *name, HeraldStopPointKind kind)
{
	int			waiter = -1;

	if (herald_stop_points == NULL ||
		atomic_load_explicit(&herald_stop_points->armed_count, memory_order_relaxed) == 0)
		return;

	switch (take(name, &waiter))
	{
		case ACTION_NONE:
			return;
		case ACTION_WAIT:
			await_release(waiter, kind == HERALD_STOP_KIND_STOP);
			break;
		case ACTION_ERROR:
			/* The test is wrong: make it fail. */
			if (kind == HERALD_STOP_KIND_HOLD)
				elog(PANIC, "no error may be thrown at stop point \"%s\"", name);
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("error at stop point \"%s\"", name)));
			break;
		case ACTION_MESSAGE:
			ereport(WARNING, (errmsg_internal("message at stop point \"%s\"", name)));
			break;
		case ACTION_CANCEL:
			kill(MyProcPid, SIGINT);
			break;
		case ACTION_TERMINATE:
			kill(MyProcPid, SIGTERM);
			break;
		case ACTION_KILL:
			kill(MyProcPid, SIGKILL);
			break;
		case ACTION_LOCK:
			lock_native_queue();
			break;
		case ACTION_LWLOCK:
			LWLockAcquire(TwoPhaseStateLock, LW_SHARED);
			break;
	}
	if (kind == HERALD_STOP_KIND_STOP)
		CHECK_FOR_INTERRUPTS();
}

/*
 * herald_stop_arm(name text, action text, pid integer, times integer) → void
 */
Datum
herald_stop_arm(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Action		action = find_action(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	int			i = 0;

	SpinLockAcquire(&herald_stop_points->lock);
	while (i < ARMED_MAX && herald_stop_points->armed[i].times > 0)
		i++;
	if (i < ARMED_MAX)
	{
		Armed	   *armed = &herald_stop_points->armed[i];

		strlcpy(armed->name, name, NAMEDATALEN);
		armed->action = action;
		armed->pid = PG_GETARG_INT32(2);
		armed->times = PG_GETARG_INT32(3);
		atomic_fetch_add(&herald_stop_points->armed_count, 1);
	}
	SpinLockRelease(&herald_stop_points->lock);

	if (i == ARMED_MAX)
		elog(ERROR, "more than %d stop points are armed", ARMED_MAX);
	PG_RETURN_VOID();
}

/*
 * herald_stop_release(name text) → integer: the processes that wait at the stop point
 * continue, and it is no longer armed; '' stands for all stop points.  Returns the number of
 * processes that waited.
 */
Datum
herald_stop_release(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			count = 0;

	SpinLockAcquire(&herald_stop_points->lock);
	for (int i = 0; i < ARMED_MAX; i++)
	{
		Armed	   *armed = &herald_stop_points->armed[i];

		if (armed->times > 0 && (*name == '\0' || strcmp(armed->name, name) == 0))
		{
			armed->times = 0;
			atomic_fetch_sub(&herald_stop_points->armed_count, 1);
		}
	}
	for (int i = 0; i < WAITERS_MAX; i++)
	{
		Waiter	   *waiter = &herald_stop_points->waiters[i];

		if (waiter->pid != 0 && !waiter->released &&
			(*name == '\0' || strcmp(waiter->name, name) == 0))
		{
			waiter->released = true;
			count++;
		}
	}
	SpinLockRelease(&herald_stop_points->lock);
	PG_RETURN_INT32(count);
}

/*
 * herald_stop_waiter(name text) → integer: the pid of a process that waits there; NULL: none
 */
Datum
herald_stop_waiter(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			pid = 0;

	SpinLockAcquire(&herald_stop_points->lock);
	for (int i = 0; i < WAITERS_MAX && pid == 0; i++)
	{
		if (!herald_stop_points->waiters[i].released &&
			strcmp(herald_stop_points->waiters[i].name, name) == 0)
			pid = herald_stop_points->waiters[i].pid;
	}
	SpinLockRelease(&herald_stop_points->lock);

	if (pid == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(pid);
}

/*
 * herald_stop_armed(name text) → boolean: processes have not yet reached it the armed number
 * of times
 */
Datum
herald_stop_armed(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	bool		result = false;

	SpinLockAcquire(&herald_stop_points->lock);
	for (int i = 0; i < ARMED_MAX && !result; i++)
		result = herald_stop_points->armed[i].times > 0 &&
			strcmp(herald_stop_points->armed[i].name, name) == 0;
	SpinLockRelease(&herald_stop_points->lock);
	PG_RETURN_BOOL(result);
}

/*
 * The action that this process must perform here.  If it must wait, it is added to the list of
 * waiters.
 */
static Action
take(const char *name, int *waiter)
{
	Action		action = ACTION_NONE;

	SpinLockAcquire(&herald_stop_points->lock);
	for (int i = 0; i < ARMED_MAX && action == ACTION_NONE; i++)
	{
		Armed	   *armed = &herald_stop_points->armed[i];

		if (armed->times == 0 || (armed->pid != 0 && armed->pid != MyProcPid) ||
			strcmp(armed->name, name) != 0)
			continue;
		if (armed->action == ACTION_WAIT && (*waiter = add_waiter(name)) < 0)
			continue;
		action = armed->action;
		if (--armed->times == 0)
			atomic_fetch_sub(&herald_stop_points->armed_count, 1);
	}
	SpinLockRelease(&herald_stop_points->lock);
	return action;
}

/* Under the lock.  -1: there is no room. */
static int
add_waiter(const char *name)
{
	for (int i = 0; i < WAITERS_MAX; i++)
	{
		Waiter	   *waiter = &herald_stop_points->waiters[i];

		if (waiter->pid != 0)
			continue;
		strlcpy(waiter->name, name, NAMEDATALEN);
		waiter->pid = MyProcPid;
		waiter->released = false;
		return i;
	}
	return -1;
}

static void
await_release(int waiter, bool serves_interrupts)
{
	volatile Waiter *mine = &herald_stop_points->waiters[waiter];

	if (!serves_interrupts)
	{
		while (!mine->released)
		{
			if (!PostmasterIsAlive())
				_exit(1);
			pg_usleep(POLL_US);
		}
		remove_waiter(0, Int32GetDatum(waiter));
		return;
	}

	PG_ENSURE_ERROR_CLEANUP(remove_waiter, Int32GetDatum(waiter));
	{
		/* The background worker has to check for itself whether it must exit. */
		while (!mine->released && !ShutdownRequestPending && PostmasterIsAlive())
		{
			pg_usleep(POLL_US);
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(remove_waiter, Int32GetDatum(waiter));
	remove_waiter(0, Int32GetDatum(waiter));
}

static void
remove_waiter(int code, Datum waiter)
{
	SpinLockAcquire(&herald_stop_points->lock);
	memset(&herald_stop_points->waiters[DatumGetInt32(waiter)], 0, sizeof(Waiter));
	SpinLockRelease(&herald_stop_points->lock);
}

static Action
find_action(const char *name)
{
	for (int i = 1; i < lengthof(action_names); i++)
	{
		if (strcmp(action_names[i], name) == 0)
			return (Action) i;
	}
	elog(ERROR, "there is no action \"%s\" at stop points", name);
}
