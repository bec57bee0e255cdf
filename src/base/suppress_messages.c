/*-------------------------------------------------------------------------
 *
 * suppress_messages.c
 *	  Runs a function with client messages suppressed.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "base/compat.h"
#include "base/suppress_messages.h"

static bool run(bool (*function) (void *), void *arg, bool logs);
static void log_error(MemoryContext context);


bool
herald_with_messages_suppressed(bool (*function) (void *), void *arg)
{
	return run(function, arg, true);
}

bool
herald_with_errors_dropped(bool (*function) (void *), void *arg)
{
	return run(function, arg, false);
}

static bool
run(bool (*function) (void *), void *arg, bool logs)
{
	int			before = client_min_messages;
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	volatile bool result = false;

	client_min_messages = ERROR;
	HOLD_INTERRUPTS();
	PG_TRY();
	{
		result = function(arg);
	}
	PG_CATCH();
	{
		/* Throwing the error has reset these counters. */
		InterruptHoldoffCount = holdoff + 1;
		QueryCancelHoldoffCount = cancel_holdoff;
		if (logs)
			log_error(context);
		else
		{
			MemoryContextSwitchTo(context);
			FlushErrorState();
		}
	}
	PG_END_TRY();
	RESUME_INTERRUPTS();
	client_min_messages = before;
	return result;
}

static void
log_error(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	ereport(LOG_SERVER_ONLY,
			(errcode(error->sqlerrcode), errmsg_internal("%s", error->message),
			 errhidestmt(true)));
	FreeErrorData(error);
}
