/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The differences between PostgreSQL 15 and 19, and macros for other processes.
 *
 * Code elsewhere is written for the newest server; what older ones call or
 * declare differently is mapped here, each with the upstream change it
 * follows.  PG_VERSION_NUM is used in this file only.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_COMPAT_H
#define HERALD_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "pg_herald supports PostgreSQL 15 to 19"
#endif

#include "fmgr.h"
#include "lib/dshash.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "postmaster/bgworker_internals.h"
#include "replication/message.h"
#include "replication/origin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/condition_variable.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

/*
 * 16: varlenas have a header of their own.  The identifier of a relation's file, and its header,
 * have other names.
 */
#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
#include "varatt.h"
typedef RelFileLocator HeraldRelFile;
#else
#include "storage/relfilenode.h"
typedef RelFileNode HeraldRelFile;
#endif

/*
 * 16: what the server looks up in a library is marked, and its makefiles hide all other names.  We
 * hide them for 15 as well.
 */
#if PG_VERSION_NUM < 160000
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(name) \
extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, name)(void); \
const Pg_finfo_record * \
CppConcat(pg_finfo_, name) (void) \
{ \
	static const Pg_finfo_record my_finfo = {1}; \
	return &my_finfo; \
} \
extern int	no_such_variable
#endif

/* 18: a library tells its name and version, that of the extensions; pg_get_loaded_modules() shows them. */
#define HERALD_VERSION	"1.0"
#if PG_VERSION_NUM >= 180000
#define HERALD_MODULE(library)	PG_MODULE_MAGIC_EXT(.name = library, .version = HERALD_VERSION)
#else
#define HERALD_MODULE(library)	PG_MODULE_MAGIC
#endif

/*
 * 17: backends are numbered from 0 by ProcNumber instead of from 1 by BackendId.  Our slots
 * are numbered from 0.
 */
#if PG_VERSION_NUM >= 170000
#define herald_my_slot()				((uint32) MyProcNumber)
#define herald_signal_slot(pid, reason, slot) \
	SendProcSignal((pid), (reason), (ProcNumber) (slot))
#define herald_my_proc_number()			((int) MyProcNumber)
#else
#define herald_my_slot()				((uint32) (MyBackendId - 1))
#define herald_signal_slot(pid, reason, slot) \
	SendProcSignal((pid), (reason), (BackendId) ((slot) + 1))
#define herald_my_proc_number()			((int) MyProc->pgprocno)
#endif

/* 18: pg_noreturn goes before the declaration, and the attribute is gone. */
#if PG_VERSION_NUM >= 180000
#define herald_noreturn					pg_noreturn
#else
#define herald_noreturn					pg_attribute_noreturn()
#endif

/* The latch, and the process id, of the process with herald_my_proc_number(). */
#define herald_proc_latch(number)		(&GetPGProcByNumber(number)->procLatch)
#define herald_proc_pid(number)			(GetPGProcByNumber(number)->pid)

/* 17: a process's virtual transaction id is a structure of its own. */
#if PG_VERSION_NUM >= 170000
#define herald_proc_lxid(number)		(GetPGProcByNumber(number)->vxid.lxid)
#else
#define herald_proc_lxid(number)		(GetPGProcByNumber(number)->lxid)
#endif

/* 17: the same function can also check for a stronger lock. */
#if PG_VERSION_NUM >= 170000
#define herald_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode), false)
#else
#define herald_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode))
#endif

/* What another process waits for, as at any moment of this call; 0: nothing.  The server writes it without a lock. */
static inline uint32
herald_proc_wait_event(int number)
{
	return *(volatile uint32 *) &GetPGProcByNumber(number)->wait_event_info;
}

/* Is another process in a transaction?  One that has failed does not count. */
static inline bool
herald_proc_is_in_transaction(int number)
{
	return *(volatile LocalTransactionId *) &herald_proc_lxid(number) != InvalidLocalTransactionId;
}

/*
 * Would a signal to this process have no effect now?  That is so if it waits for something
 * other than its client's next message or the wait event `for_us`, or for a message within a
 * transaction.
 */
static inline bool
herald_proc_waits_elsewhere(int number, uint32 for_us)
{
	uint32		wait = herald_proc_wait_event(number);

	if (wait == WAIT_EVENT_CLIENT_READ)
		return herald_proc_is_in_transaction(number);
	return wait != 0 && wait != for_us;
}

/* 19: a wait until no other process has pinned a page has another name. */
#if PG_VERSION_NUM >= 190000
#define HERALD_WAIT_EVENT_BUFFER_CLEANUP	WAIT_EVENT_BUFFER_CLEANUP
#elif PG_VERSION_NUM >= 170000
#define HERALD_WAIT_EVENT_BUFFER_CLEANUP	WAIT_EVENT_BUFFER_PIN
#else
#define HERALD_WAIT_EVENT_BUFFER_CLEANUP	PG_WAIT_BUFFER_PIN
#endif

/* 17: dshash supports strings as keys, and copies a key by a function that the table names. */
#if PG_VERSION_NUM >= 170000
#define HERALD_DSHASH_PARAMETERS(key_size_, entry_size_, compare_, hash_, tranche_) \
	{ .key_size = (key_size_), .entry_size = (entry_size_), \
	  .compare_function = (compare_), .hash_function = (hash_), \
	  .copy_function = dshash_memcpy, .tranche_id = (tranche_) }
#else
#define HERALD_DSHASH_PARAMETERS(key_size_, entry_size_, compare_, hash_, tranche_) \
	{ .key_size = (key_size_), .entry_size = (entry_size_), \
	  .compare_function = (compare_), .hash_function = (hash_), \
	  .tranche_id = (tranche_) }
#endif

/* 19: the planner hook gets EXPLAIN's state, if it plans for EXPLAIN. */
#if PG_VERSION_NUM >= 190000
#define HERALD_PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursor_options, \
	ParamListInfo bound_params, struct ExplainState *es
#define HERALD_PLANNER_ARGS		parse, query_string, cursor_options, bound_params, es
#else
#define HERALD_PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo bound_params
#define HERALD_PLANNER_ARGS		parse, query_string, cursor_options, bound_params
#endif

/* 19: the analysis hook may no longer change the jumbled query. */
#if PG_VERSION_NUM >= 190000
#define HERALD_ANALYZE_PARAMS	ParseState *pstate, Query *query, const JumbleState *jstate
#else
#define HERALD_ANALYZE_PARAMS	ParseState *pstate, Query *query, JumbleState *jstate
#endif
#define HERALD_ANALYZE_ARGS		pstate, query, jstate

/* 16: one aclcheck and one ownercheck function replace those of each kind of object. */
#if PG_VERSION_NUM < 160000
#define object_ownercheck(classid, objectid, roleid) \
	((void) (classid), pg_class_ownercheck((objectid), (roleid)))
#define object_aclcheck(classid, objectid, roleid, mode) \
	((void) (classid), pg_proc_aclcheck((objectid), (roleid), (mode)))
#endif

/*
 * 19: a tranche is named when its id is allocated.  Before, the name has to be registered in
 * each process; names that the postmaster has registered are inherited through fork().
 */
#if PG_VERSION_NUM >= 190000
#define herald_tranche_new(name)		LWLockNewTrancheId(name)
#define herald_tranche_name(id, name)	((void) (id), (void) (name))
#else
#define herald_tranche_new(name)		LWLockNewTrancheId()
#define herald_tranche_name(id, name)	LWLockRegisterTranche((id), (name))
#endif

/* 17: an extension's wait events have names. */
#if PG_VERSION_NUM >= 170000
#define herald_wait_event_new(name)		WaitEventExtensionNew(name)
#else
#define herald_wait_event_new(name)		((void) (name), PG_WAIT_EXTENSION)
#endif

/* 18: a generated column can be virtual: a stored row has no value for it. */
#if PG_VERSION_NUM >= 180000
#define herald_is_virtual(attribute)	((attribute)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#else
#define herald_is_virtual(attribute)	((void) (attribute), false)
#endif

/* 17: a MERGE with NOT MATCHED BY SOURCE also has its join condition in ModifyTable. */
#if PG_VERSION_NUM >= 170000
#define herald_merge_join_conditions(plan)	((plan)->mergeJoinConditions)
#else
#define herald_merge_join_conditions(plan)	((void) (plan), NIL)
#endif

/* 17: transaction_timeout exists, and would also limit empty transactions. */
#if PG_VERSION_NUM >= 170000
#define herald_disable_transaction_timeout() \
	((void) (TransactionTimeout > 0 ? disable_timeout(TRANSACTION_TIMEOUT, false) : (void) 0))
#else
#define herald_disable_transaction_timeout()	((void) 0)
#endif

/* 17: a logical message can be flushed at once. A transactional one never needs that. */
#if PG_VERSION_NUM >= 170000
#define herald_log_logical_message(prefix, text, length, transactional) \
	LogLogicalMessage((prefix), (text), (length), (transactional), false)
#else
#define herald_log_logical_message(prefix, text, length, transactional) \
	LogLogicalMessage((prefix), (text), (length), (transactional))
#endif

/* 19: a session's replication origin is in a structure, and its type has another name. */
#if PG_VERSION_NUM >= 190000
typedef ReplOriginId HeraldOrigin;
#define herald_session_origin			(replorigin_xact_state.origin)
#else
typedef RepOriginId HeraldOrigin;
#define herald_session_origin			replorigin_session_origin
#endif

/* 19: searching the WAL for a record tells why there is none. */
#if PG_VERSION_NUM >= 190000
#define herald_find_next_record(reader, position, error)	XLogFindNextRecord((reader), (position), (error))
#else
#define herald_find_next_record(reader, position, error) \
	(*(error) = NULL, XLogFindNextRecord((reader), (position)))
#endif

/* 16: the process that replays the WAL tells a condition variable of each record, if standbys may connect. */
#if PG_VERSION_NUM >= 160000
#define herald_replay_condition() \
	(max_wal_senders > 0 ? &WalSndCtl->wal_replay_cv : (ConditionVariable *) NULL)
#else
#define herald_replay_condition()		((ConditionVariable *) NULL)
#endif

/*
 * In the postmaster: the background worker that has been registered last, or null.  18: the list is a doubly linked one.
 */
static inline RegisteredBgWorker *
herald_last_registered_worker(void)
{
#if PG_VERSION_NUM >= 180000
	return dlist_is_empty(&BackgroundWorkerList) ? NULL :
		dlist_head_element(RegisteredBgWorker, rw_lnode, &BackgroundWorkerList);
#else
	return slist_is_empty(&BackgroundWorkerList) ? NULL :
		slist_head_element(RegisteredBgWorker, rw_lnode, &BackgroundWorkerList);
#endif
}

#endif							/* HERALD_COMPAT_H */
