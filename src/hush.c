/*-------------------------------------------------------------------------
 *
 * hush.c
 *	  Stretches in which a process has nothing to say to its client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "compat/compat.h"
#include "hush.h"

static void log_error(MemoryContext context);


int
herald_hush(int level)
{
	int			before = client_min_messages;

	client_min_messages = Max(before, level);
	return before;
}

void
herald_unhush(int before)
{
	client_min_messages = before;
}

bool
herald_hushed(bool (*function) (void *), void *arg)
{
	int			before = herald_hush(ERROR);
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;
	volatile bool result = false;

	HOLD_INTERRUPTS();
	PG_TRY();
	{
		result = function(arg);
	}
	PG_CATCH();
	{
		InterruptHoldoffCount = holdoff + 1;	/* the error has let go of all */
		log_error(context);
	}
	PG_END_TRY();
	RESUME_INTERRUPTS();
	herald_unhush(before);
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
