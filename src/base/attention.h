/*-------------------------------------------------------------------------
 *
 * attention.h
 *	  Handlers in this backend for signals other than those for notifications.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ATTENTION_H
#define HERALD_ATTENTION_H

#include "postgres.h"

/*
 * Runs with an open transaction in any state: at the beginning of a statement, or before a
 * commit.  Should not throw.  If it does, the transaction fails, this reason counts as handled,
 * and others that came with it are lost.
 */
typedef void (*HeraldAttention) (void *arg);

/*
 * From now on this backend handles a reason: a bit of HERALD_REASONS_CATCH_UP.  In a backend,
 * not in the postmaster.
 */
extern void herald_attention_to(uint32 reason, HeraldAttention handler, void *arg);

/* Does this backend handle any reason? */
extern bool herald_attention_is_on(void);

/* Run the handlers of the reasons that are set.  At a safe point. */
extern void herald_attention_serve(void);

/*
 * The transaction has ended.  For a reason that came too late for it, the backend runs an
 * empty transaction as soon as it is idle.  Never fails.
 */
extern void herald_attention_end_transaction(bool committed);

#endif							/* HERALD_ATTENTION_H */
