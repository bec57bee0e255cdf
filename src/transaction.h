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

/* Once, in _PG_init(). */
extern void herald_transaction_register_callbacks(void);

#endif							/* HERALD_TRANSACTION_H */
