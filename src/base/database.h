/*-------------------------------------------------------------------------
 *
 * database.h
 *	  What all sessions of a database share.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DATABASE_H
#define HERALD_DATABASE_H

#include "postgres.h"

#include "base/shared.h"

/* The entry of a database; NULL: it has none yet.  Never fails. */
extern HeraldDatabase *herald_database_find(Oid oid);

/* The same for the present database, which gets an entry if it has none. */
extern HeraldDatabase *herald_database_claim(void);

/* A database has been created: what was sent before in another one with this oid is not its own. */
extern void herald_database_created(Oid oid);

#endif							/* HERALD_DATABASE_H */
