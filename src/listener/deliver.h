/*-------------------------------------------------------------------------
 *
 * deliver.h
 *	  From the log to the client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DELIVER_H
#define HERALD_DELIVER_H

#include "postgres.h"

#include "core/log_layout.h"

/* Have the buffer that delivering needs.  May throw.  By who joins. */
extern void herald_deliver_allocate(void);

/*
 * Do not let the client go on before everything up to this position, which its
 * own transaction sent and listens to, has been delivered.
 */
extern void herald_deliver_await(HeraldPosition position);
extern bool herald_deliver_is_awaited(void);

/*
 * Deliver what is pending.  In an idle transaction, before its commit.  If the
 * client cannot be sent a message the connection ends: it must not miss one
 * unawares.
 */
extern void herald_deliver(void);

/*
 * Deliver what was there when the transaction that is under way began, and leaves
 * the rest.  Before its commit, when it is about to drop channels; by a backend
 * that holds no locks of ours.  Errors as herald_deliver().
 */
extern void herald_deliver_earlier(void);

#endif							/* HERALD_DELIVER_H */
