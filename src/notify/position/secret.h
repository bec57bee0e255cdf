/*-------------------------------------------------------------------------
 *
 * secret.h
 *	  The secret by which this database recognises its positions.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SECRET_H
#define HERALD_SECRET_H

#include "postgres.h"

#define HERALD_SECRET_BYTES		32

/*
 * The secret, valid until the transaction ends.  of_database: it is that of the extension in this
 * database, the same on all servers of the cluster; else, without the extension, it is that of
 * this run of the server.  In a transaction; may throw.
 */
extern const uint8 *herald_secret(bool *of_database);

#endif							/* HERALD_SECRET_H */
