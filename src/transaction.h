/*-------------------------------------------------------------------------
 *
 * transaction.h
 *	  The actions at the end of a transaction, and their order.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TRANSACTION_H
#define HERALD_TRANSACTION_H

#include "postgres.h"

/* Called once, in _PG_init(). */
extern void herald_transaction_register_callbacks(void);

#endif							/* HERALD_TRANSACTION_H */
