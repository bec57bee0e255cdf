/*-------------------------------------------------------------------------
 *
 * subscribers.c
 *	  The caches of this backend, which drop invalidated values.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "inval/subscribers.h"

/* Enough for the SQL caches and those of some other modules. */
#define SUBSCRIBERS_MAX		32

static struct
{
	HeraldForget forget;
	void	   *arg;
}			subscribers[SUBSCRIBERS_MAX];
static int	subscribers_count;


void
herald_invalidation_subscribe(HeraldForget forget, void *arg)
{
	if (subscribers_count == SUBSCRIBERS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many modules have caches"),
				 errdetail("At most %d can be registered.", SUBSCRIBERS_MAX)));
	subscribers[subscribers_count].forget = forget;
	subscribers[subscribers_count].arg = arg;
	subscribers_count++;
}

void
herald_invalidation_apply(uint32 cache, uint32 key)
{
	for (int i = 0; i < subscribers_count; i++)
		subscribers[i].forget(cache, key, subscribers[i].arg);
}
