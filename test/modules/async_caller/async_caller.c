/*-------------------------------------------------------------------------
 *
 * async_caller.c
 *	  LISTEN, UNLISTEN and NOTIFY as C functions of an extension call them.
 *
 * No statement is involved, so that no hook sees these calls.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(async_listen);
PG_FUNCTION_INFO_V1(async_unlisten);
PG_FUNCTION_INFO_V1(async_notify);


/* async_listen(channel text) → void */
Datum
async_listen(PG_FUNCTION_ARGS)
{
	Async_Listen(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* async_unlisten(channel text) → void */
Datum
async_unlisten(PG_FUNCTION_ARGS)
{
	Async_Unlisten(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* async_notify(channel text, payload text) → void */
Datum
async_notify(PG_FUNCTION_ARGS)
{
	Async_Notify(text_to_cstring(PG_GETARG_TEXT_PP(0)),
				 text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}
