/*-------------------------------------------------------------------------
 *
 * herald_client.h
 *	  Declarations shared by the parts of the module.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLIENT_H
#define HERALD_CLIENT_H

#include "postgres.h"

#include "extension/pg_herald/pg_herald_api.h"
#include "extension/pg_herald_cache/pg_herald_cache_api.h"

/* pg_herald's interface, after registering our reasons; NULL without pg_herald. */
extern const HeraldApi *client_herald(void);

/* pg_herald_cache's interface, after registering our cache; NULL without it. */
extern const HeraldCacheApi *client_caches(void);

/* Register with them. */
extern void client_settings_attach(const HeraldCacheApi *caches);
extern void client_reasons_attach(const HeraldApi *herald);

/* Notify; natively without pg_herald. */
extern void client_send_notification(const char *channel, const char *payload);

/* Invalidate a setting, or all of them if key is NULL; does nothing without pg_herald_cache. */
extern void client_settings_invalidate(const char *key);

/* Called once, by _PG_init(). */
extern void client_at_commit_install(void);

#endif							/* HERALD_CLIENT_H */
