/*-------------------------------------------------------------------------
 *
 * activation.h
 *	  Is pg_herald switched on in this database?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ACTIVATION_H
#define HERALD_ACTIVATION_H

#include "postgres.h"

/*
 * Does the extension pg_herald exist in this database?  To be called in a transaction that can
 * read catalogs.  Cheap: looked up again only after a change of pg_proc.  True as well while that is
 * locked; then the functions below may be InvalidOid.  Never waits.
 */
extern bool herald_activation_is_on(void);

/* The extension's functions that replace built-in ones, or InvalidOid.  After herald_activation_is_on(). */
extern Oid	herald_activation_notify_function(void);
extern Oid	herald_activation_usage_function(void);

#endif							/* HERALD_ACTIVATION_H */
