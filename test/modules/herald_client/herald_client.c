/*-------------------------------------------------------------------------
 *
 * herald_client.c
 *	  An extension that uses all of the interfaces for C of pg_herald and pg_herald_cache.
 *
 * It can be loaded with them or without: preloaded before or after them, or
 * later, in one session.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "herald_client.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(client_has_herald);
PG_FUNCTION_INFO_V1(client_has_caches);
PG_FUNCTION_INFO_V1(client_notify);

void		_PG_init(void);

void
_PG_init(void)
{
	client_at_commit_install();
	(void) client_herald();
	(void) client_caches();
}

/* If preloaded before pg_herald, the module finds it only later, so each user of it calls this. */
const HeraldApi *
client_herald(void)
{
	static const HeraldApi *attached;

	if (attached == NULL)
	{
		const HeraldApi *herald = herald_api_find();

		if (herald)
			client_reasons_attach(herald);
		attached = herald;
	}
	return attached;
}

const HeraldCacheApi *
client_caches(void)
{
	static const HeraldCacheApi *attached;

	if (attached == NULL)
	{
		const HeraldCacheApi *caches = herald_cache_api_find();

		if (caches)
			client_settings_attach(caches);
		attached = caches;
	}
	return attached;
}

void
client_send_notification(const char *channel, const char *payload)
{
	const HeraldApi *herald = client_herald();

	if (herald)
		herald->notify(channel, payload);
	else
		Async_Notify(channel, payload);
}

/* has_herald() → boolean */
Datum
client_has_herald(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(client_herald() != NULL);
}

/* has_caches() → boolean */
Datum
client_has_caches(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(client_caches() != NULL);
}

/* notify(channel text, payload text) → void */
Datum
client_notify(PG_FUNCTION_ARGS)
{
	client_send_notification(PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0)),
							 PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}
