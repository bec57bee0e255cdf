/*-------------------------------------------------------------------------
 *
 * herald_client.h
 *	  What the parts of the module have of each other.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CLIENT_H
#define HERALD_CLIENT_H

#include "postgres.h"

#include "extension/pg_herald/pg_herald_api.h"

/* pg_herald's interface, with all of ours registered there; NULL: there is no pg_herald. */
extern const HeraldApi *client_herald(void);

/* Register there. */
extern void client_settings_attach(const HeraldApi *herald);
extern void client_reasons_attach(const HeraldApi *herald);

/* Notify, if need be the server's own way. */
extern void client_send_notification(const char *channel, const char *payload);

/* Invalidate a setting, if there is pg_herald; NULL: all of them. */
extern void client_settings_invalidate(const char *key);

/* Once, in _PG_init(). */
extern void client_at_commit_install(void);

#endif							/* HERALD_CLIENT_H */
