/*-------------------------------------------------------------------------
 *
 * gap.h
 *	  A place in the queue at which notifications are missing.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_GAP_H
#define HERALD_GAP_H

#include "postgres.h"

/*
 * Put a gap into the queue, and dispatch it: each listener in this database is notified, after
 * everything before it, that it has missed notifications.  InvalidOid: none is.  In a transaction;
 * may wait, and throw, as a sender may.
 */
extern void herald_gap_publish(Oid database);

#endif							/* HERALD_GAP_H */
