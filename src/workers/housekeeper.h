/*-------------------------------------------------------------------------
 *
 * housekeeper.h
 *	  The background worker that deletes files, and writes anchors into the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HOUSEKEEPER_H
#define HERALD_HOUSEKEEPER_H

#include "postgres.h"

/* Have the postmaster run it.  Once, in _PG_init(). */
extern void herald_housekeeper_register(void);

#endif							/* HERALD_HOUSEKEEPER_H */
