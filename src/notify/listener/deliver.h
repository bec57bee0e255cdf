/*-------------------------------------------------------------------------
 *
 * deliver.h
 *	  Delivers messages from the queue to the client.
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
 * Deliver pending messages.  In an empty transaction, before its commit.  If a message cannot
 * be sent to the client the connection ends: a client must know that it has missed messages.
 */
extern void herald_deliver(void);

/*
 * Deliver the messages that existed when the current transaction began, and leave the rest.
 * Before its commit, when it is about to drop channels; by a backend that holds no lock of
 * pg_herald.  Errors as in herald_deliver().
 */
extern void herald_deliver_earlier(void);

#endif							/* HERALD_DELIVER_H */
