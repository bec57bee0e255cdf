/*-------------------------------------------------------------------------
 *
 * deliver.h
 *	  From the queue to the client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DELIVER_H
#define HERALD_DELIVER_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Deliver what is pending.  In an idle transaction, before its commit.  If a
 * message cannot be sent to the client the connection ends: a client must know
 * what it has missed.
 */
extern void herald_deliver(void);

/*
 * Deliver what was there when the transaction that is under way began, and leaves
 * the rest.  Before its commit, when it is about to drop channels; by a backend
 * that holds no locks of ours.  Errors as herald_deliver().
 */
extern void herald_deliver_earlier(void);

#endif							/* HERALD_DELIVER_H */
