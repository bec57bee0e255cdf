/*-------------------------------------------------------------------------
 *
 * reasons.c
 *	  Signal reasons: registered, sent and handled.
 *
 * The handler counts its calls, and writes a line into the server's log, which
 * shows that it ran while the backend was idle.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/builtins.h"

#include "herald_client.h"

PG_FUNCTION_INFO_V1(client_register_reason);
PG_FUNCTION_INFO_V1(client_send);
PG_FUNCTION_INFO_V1(client_handled);
PG_FUNCTION_INFO_V1(client_launch_sender);

/* More than pg_herald accepts. */
#define REASONS_MAX		40

/* Registered when the module is loaded; a test sets a higher number. */
#ifndef REASONS_AT_START
#define REASONS_AT_START	1
#endif

typedef struct Registered
{
	char		name[NAMEDATALEN];
	HeraldReason *reason;
	int			handled;		/* number of calls of the handler */
} Registered;

static Registered registered[REASONS_MAX];
static int	registered_count;

extern PGDLLEXPORT void client_sender_main(Datum pid);

static void register_reason(const HeraldApi *herald, const char *name);
static Registered *find(const char *name);
static void handle(void *arg);
static const HeraldApi *need_herald(void);


void
client_reasons_attach(const HeraldApi *herald)
{
	register_reason(herald, "herald_client");
	for (int i = 2; i <= REASONS_AT_START; i++)
		register_reason(herald, psprintf("reason %d", i));
}

/* register_reason(name text) → void */
Datum
client_register_reason(PG_FUNCTION_ARGS)
{
	register_reason(need_herald(), text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* send(pid integer, name text) → boolean */
Datum
client_send(PG_FUNCTION_ARGS)
{
	const HeraldApi *herald = need_herald();
	Registered *it = find(text_to_cstring(PG_GETARG_TEXT_PP(1)));

	PG_RETURN_BOOL(it && herald->reason_send(it->reason, PG_GETARG_INT32(0)));
}

/* handled(name text) → integer */
Datum
client_handled(PG_FUNCTION_ARGS)
{
	Registered *it = find(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	PG_RETURN_INT32(it ? it->handled : 0);
}

/* launch_sender(pid integer, connects boolean) → void */
Datum
client_launch_sender(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_main_arg = Int32GetDatum(PG_GETARG_INT32(0)),
		.bgw_notify_pid = MyProcPid,
	};
	BackgroundWorkerHandle *handle;

	if (PG_GETARG_BOOL(1))
	{
		worker.bgw_flags |= BGWORKER_BACKEND_DATABASE_CONNECTION;
		memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(Oid));
	}
	strlcpy(worker.bgw_name, "herald_client sender", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "herald_client sender", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "herald_client", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "client_sender_main", BGW_MAXLEN);
	if (!RegisterDynamicBackgroundWorker(&worker, &handle) ||
		WaitForBackgroundWorkerShutdown(handle) != BGWH_STOPPED)
		ereport(ERROR, (errmsg("the background worker did not run")));
	PG_RETURN_VOID();
}

/* A background worker: sends, logs the results, and ends. */
void
client_sender_main(Datum pid)
{
	const HeraldApi *herald = need_herald();
	HeraldReason *reason = find("herald_client")->reason;
	Oid			database;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	BackgroundWorkerUnblockSignals();
	if (OidIsValid(database))
		BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	ereport(LOG,
			(errmsg("herald_client: a background worker has sent: %d, to itself: %d",
					herald->reason_send(reason, DatumGetInt32(pid)),
					herald->reason_send(reason, MyProcPid))));
	proc_exit(0);
}

static void
register_reason(const HeraldApi *herald, const char *name)
{
	Registered *it = &registered[registered_count];

	if (registered_count == REASONS_MAX)
		ereport(ERROR, (errmsg("herald_client has no room for more reasons")));
	it->reason = herald->reason_register(name, handle, it);
	strlcpy(it->name, name, NAMEDATALEN);
	it->handled = 0;
	registered_count++;
}

static Registered *
find(const char *name)
{
	for (int i = 0; i < registered_count; i++)
		if (strcmp(registered[i].name, name) == 0)
			return &registered[i];
	return NULL;
}

static void
handle(void *arg)
{
	Registered *it = arg;

	it->handled++;
	ereport(LOG,
			(errmsg("herald_client: %s %s", it->name,
					IsTransactionState() ? "in a transaction" : "in no transaction")));
}

static const HeraldApi *
need_herald(void)
{
	const HeraldApi *herald = client_herald();

	if (herald == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("herald_client: pg_herald is not loaded")));
	return herald;
}
