/*-------------------------------------------------------------------------
 *
 * pg_herald_api.h
 *	  The C interface of pg_herald for other modules.
 *
 * A module that uses it can be built and loaded without pg_herald: it checks at run time whether
 * pg_herald is loaded.
 *
 *		const HeraldApi *herald = herald_api_find();
 *
 *		if (herald)
 *			herald->notify("jobs", "new");
 *
 * herald_api_find() may be called from _PG_init() on, by any module that is loaded
 * after pg_herald, and always once the server runs.
 *
 * All functions must be called in a backend (not in the postmaster, unless a function's
 * comment allows it), from the main thread, outside of signal handlers.  "Throws" means
 * ereport(ERROR).  docs/c-api.md has examples.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_HERALD_API_H
#define PG_HERALD_API_H

#include "postgres.h"

#include "fmgr.h"

/*
 * A new major version is a different interface.  Within a major version, functions are only
 * added at the end: check HERALD_API_HAS() before using one that was added later.
 */
#define HERALD_API_MAJOR	1

#define HERALD_API_HAS(api, function) \
	((api)->size >= offsetof(HeraldApi, function) + sizeof((api)->function))

/* A reason to signal that a module has registered.  Lives as long as the process. */
typedef struct HeraldReason HeraldReason;

/*
 * Called when this reason has been sent to this process, once or several times since the last
 * call.  Runs at a safe point: at the beginning of a statement, before a commit, or in an
 * empty transaction if the process was idle.  A transaction is open and has not failed, but it
 * may be the client's, and about to commit; there may be no snapshot.  May notify and
 * use pg_herald_cache_api.h.  Must not throw, and must not send a reason to its own process.
 */
typedef void (*HeraldReasonHandler) (void *arg);

typedef struct HeraldApi
{
	uint32		major;			/* HERALD_API_MAJOR */
	uint32		size;			/* of this structure, in bytes */

	/*
	 * Does the same as the NOTIFY statement; payload may be NULL for an empty
	 * one.  In a transaction, up to and including the callbacks before its
	 * commit; throws the errors of NOTIFY.
	 */
	void		(*notify) (const char *channel, const char *payload);

	/*
	 * Register a reason by its name, of at most 63 bytes, with its handler in
	 * this process; also from _PG_init() in the postmaster.  Registering it
	 * again replaces the handler.  NULL: this process only sends it, if it
	 * has registered no handler.  A server can have 31 reasons until it
	 * restarts.  Throws if there are more, or if the name is too long or
	 * empty.
	 */
	HeraldReason *(*reason_register) (const char *name, HeraldReasonHandler handler, void *arg);

	/*
	 * Make the handler run in the process with this id; if the reason is sent
	 * several times before that, it runs once.  False: no process with this
	 * id has registered the reason, or it was registered in the postmaster
	 * and the process has not finished its start.  Needs no transaction.
	 * Never throws.
	 */
	bool		(*reason_send) (HeraldReason *reason, int pid);
} HeraldApi;

#define HERALD_API_VARIABLE	"pg_herald_api"

/* The interface; NULL: pg_herald is not loaded, or is of another major version. */
static inline const HeraldApi *
herald_api_find(void)
{
	const HeraldApi *api = *(const HeraldApi **) find_rendezvous_variable(HERALD_API_VARIABLE);

	return api && api->major == HERALD_API_MAJOR ? api : NULL;
}

#endif							/* PG_HERALD_API_H */
