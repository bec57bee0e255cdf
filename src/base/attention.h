/*-------------------------------------------------------------------------
 *
 * attention.h
 *	  What this backend does when it is signalled for something else than
 *	  notifications.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ATTENTION_H
#define HERALD_ATTENTION_H

#include "postgres.h"

/*
 * Runs where a transaction is open but anything may be under way: at the
 * beginning of a statement, or before a commit.  Must not throw.
 */
typedef void (*HeraldAttention) (void *arg);

/*
 * From now on this backend attends to a reason: a bit of
 * HERALD_REASONS_CATCH_UP.  In a backend, not in the postmaster.
 */
extern void herald_attention_to(uint32 reason, HeraldAttention handler, void *arg);

/* Does it attend to any? */
extern bool herald_attention_is_on(void);

/* Run the handlers of what has come.  At a safe point. */
extern void herald_attention_serve(void);

/*
 * The transaction has ended.  What came too late for it gets an empty one as
 * soon as the backend is idle.  Never fails.
 */
extern void herald_attention_end_transaction(bool committed);

#endif							/* HERALD_ATTENTION_H */
