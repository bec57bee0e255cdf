/*-------------------------------------------------------------------------
 *
 * api.c
 *	  Implements the interface for other modules.
 *
 * pg_herald_api.h describes each function.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "api/api.h"
#include "api/pg_herald_api.h"
#include "api/reason_names.h"
#include "notify/sender/notify.h"

static void notify(const char *channel, const char *payload);

static const HeraldApi api = {
	.major = HERALD_API_MAJOR,
	.size = sizeof(HeraldApi),
	.notify = notify,
	.reason_register = herald_reason_register,
	.reason_send = herald_reason_send,
};


void
herald_api_publish(void)
{
	*(const HeraldApi **) find_rendezvous_variable(HERALD_API_VARIABLE) = &api;
}

/* As pg_notify(): the leader of a parallel query may notify. */
static void
notify(const char *channel, const char *payload)
{
	PreventCommandDuringRecovery("NOTIFY");
	herald_notify(channel, payload);
}
