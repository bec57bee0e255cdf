/*-------------------------------------------------------------------------
 *
 * answer_first.h
 *	  In calm times the sender's client is answered before listeners are woken.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ANSWER_FIRST_H
#define HERALD_ANSWER_FIRST_H

#include "postgres.h"

#include "utils/timestamp.h"

/*
 * A transaction has committed at that time, and has marked listeners.  True:
 * the first of them will be woken as soon as the client has its answer; false:
 * it is to be woken now.  Never fails.
 */
extern bool herald_answer_first(TimestampTz committed_at);

/* Has the client not been sent its answer yet? */
extern bool herald_answer_first_is_owed(void);

/* Another statement begins: it may be long, so wake whom we still owe it.  Never fails. */
extern void herald_answer_first_overdue(void);

/* Was that the last commit in calm times?  By anybody. */
extern bool herald_answer_first_was_calm(TimestampTz committed_at);

#endif							/* HERALD_ANSWER_FIRST_H */
