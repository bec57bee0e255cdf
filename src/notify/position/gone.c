/*-------------------------------------------------------------------------
 *
 * gone.c
 *	  Reports to users why the notifications after a position can no longer be read.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/compat.h"
#include "base/settings.h"
#include "notify/position/gone.h"

static void add_detail(HeraldGone gone);
static void add_hint(const char *more);


void
herald_gone_report(HeraldGone gone)
{
	if (errstart(ERROR, TEXTDOMAIN))
	{
		errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
		errmsg("notifications after this position are not kept any more");
		add_detail(gone);
		errfinish(__FILE__, __LINE__, __func__);
	}
	pg_unreachable();
}

void
herald_gone_tell(HeraldGone gone, const char *channel)
{
	if (errstart(DEBUG1, TEXTDOMAIN))
	{
		errmsg("notifications on channel \"%s\" after this position are not kept any more", channel);
		add_detail(gone);
		errfinish(__FILE__, __LINE__, __func__);
	}
}

static void
add_detail(HeraldGone gone)
{
	switch (gone.kind)
	{
		case HERALD_GONE_NOTHING:
			break;
		case HERALD_GONE_RUN:
			errdetail("The server has been restarted since, or it is another one.");
			add_hint("");
			break;
		case HERALD_GONE_DATABASE:
			errdetail("The position belongs to another database or another cluster, or was changed, or the database has been created again since.");
			add_hint("");
			break;
		case HERALD_GONE_PAST_QUEUE:
			errdetail("Some were sent through the server's own queue, where they cannot be read again.");
			add_hint(" Look for sessions with herald.enabled off.");
			break;
		case HERALD_GONE_BY_SIZE:
			errdetail("Later ones have taken their place: herald.queue_memory (%d kB) and herald.retain_size (%d kB) hold no more.",
					  herald_queue_memory_kb, herald_retain_size_kb);
			add_hint(" herald.retain_size keeps more.");
			break;
		case HERALD_GONE_FOR_ROOM:
			errdetail("They were deleted when herald.max_queue_size (%d kB) was reached or the disk was full.",
					  herald_max_queue_size_kb);
			add_hint(" Free disk space, or increase herald.max_queue_size.");
			break;
		case HERALD_GONE_WAL:
			errdetail("The WAL after the position cannot be read here: %s.", gone.text);
			add_hint(" wal_keep_size and herald.resume_wal_size keep more.");
			break;
		case HERALD_GONE_RELAY:
			errdetail("The relay of this server has not yet come to the position, or to what queries see here.");
			add_hint("");
			break;
		case HERALD_GONE_HISTORY:
			errdetail("The position cannot be used with the WAL of this server: %s.", gone.text);
			add_hint("");
			break;
		case HERALD_GONE_UNLOGGED:
			errdetail("Since the position the channel was not logged all the time, or notifications were sent through the server's own queue.");
			add_hint("");
			break;
		case HERALD_GONE_DAMAGED:
			errdetail("The notification queue of pg_herald is damaged, and was switched off.");
			add_hint("");
			break;
	}
}

static void
add_hint(const char *more)
{
	errhint("Take a new position with herald.position(), then read the state that the notifications are about.%s", more);
}
