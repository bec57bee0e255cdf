/*-------------------------------------------------------------------------
 *
 * transaction.h
 *	  What happens at the ends of transactions, in which order.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TRANSACTION_H
#define HERALD_TRANSACTION_H

#include "postgres.h"

/*
 * Does what this backend does concern us?  Most transactions neither notify nor
 * listen, in backends that do not listen either, and are to cost nothing: at
 * their statements and ends this is all that is looked at.  Set by whoever
 * gives the end of the transaction something to do.
 */
extern bool herald_transaction_is_ours;

/*
 * Have our callbacks before the commit, or before PREPARE TRANSACTION, run?  What
 * other modules' callbacks do after them comes too late for them.
 */
extern bool herald_transaction_is_committing;

/* Once, in _PG_init(). */
extern void herald_transaction_register_callbacks(void);

#endif							/* HERALD_TRANSACTION_H */
