/*-------------------------------------------------------------------------
 *
 * stop_point.h
 *	  Named places at which a test can make a process wait, fail or die.
 *
 * Some races need one process to stop between two of its steps while another process does
 * something; without help that happens once in a million runs.  A stop point names such a
 * place.  A test arms it from SQL (testing/armed_points.c), and the next process that reaches it
 * performs the armed action.
 *
 * Stop points exist only if the module was built with `make STOP_POINTS=1`.  In a release
 * build they compile to nothing.  See docs/internals/TESTING.md.
 *
 * The idea is that of PostgreSQL's injection points.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_STOP_POINT_H
#define HERALD_STOP_POINT_H

#include <stdbool.h>

/* Which actions are allowed at this place. */
typedef enum HeraldStopPointKind
{
	HERALD_STOP_KIND_HOLD,		/* no error: a lock is held, or the commit is
								 * done */
	HERALD_STOP_KIND_FAULT,		/* an error may be thrown, but interrupts are
								 * not served */
	HERALD_STOP_KIND_STOP		/* both */
} HeraldStopPointKind;

extern void herald_stop_point(const char *name, HeraldStopPointKind kind);

/*
 * This process takes or releases the dispatch lock: no message may be sent while it
 * holds one.
 */
extern void herald_stop_try_lock(bool is_held);

/*
 * To be called where a wait may begin, before it is known whether it is needed.  A build for tests
 * stops the server if this process holds the lock of the server's NOTIFY or an LWLock: see "Waits"
 * in docs/internals/LOCKS.md.
 */
extern void herald_stop_check_wait(const char *file, const char *function);

/* No message may be sent under this LWLock, which is not one of pg_herald's own. */
extern void herald_stop_add_lock(void *lock, const char *name);

#ifdef HERALD_STOP_POINTS
#define HERALD_TRY_LOCKED()			herald_stop_try_lock(true)
#define HERALD_TRY_UNLOCKED()		herald_stop_try_lock(false)
#define HERALD_HOLD_POINT(name)		herald_stop_point((name), HERALD_STOP_KIND_HOLD)
#define HERALD_FAULT_POINT(name)	herald_stop_point((name), HERALD_STOP_KIND_FAULT)
#define HERALD_STOP_POINT(name)		herald_stop_point((name), HERALD_STOP_KIND_STOP)
#define HERALD_MAY_WAIT()			herald_stop_check_wait(__FILE__, __func__)
#define HERALD_NO_MESSAGE_UNDER(lock, name)	herald_stop_add_lock((lock), (name))
#else
#define HERALD_TRY_LOCKED()			((void) 0)
#define HERALD_TRY_UNLOCKED()		((void) 0)
#define HERALD_HOLD_POINT(name)		((void) 0)
#define HERALD_FAULT_POINT(name)	((void) 0)
#define HERALD_STOP_POINT(name)		((void) 0)
#define HERALD_MAY_WAIT()			((void) 0)
#define HERALD_NO_MESSAGE_UNDER(lock, name)	((void) 0)
#endif

#endif							/* HERALD_STOP_POINT_H */
