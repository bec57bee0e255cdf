/*-------------------------------------------------------------------------
 *
 * wal_running.h
 *	  Which transactions that have written into the WAL can still commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_RUNNING_H
#define HERALD_WAL_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

/* What a record says about all transactions that have written earlier records. */
typedef struct HeraldWalRunning
{
	bool		only_prepared;	/* only prepared transactions can still
								 * commit, since a run of the server has ended */
	uint32_t	oldest;			/* all transactions with ids older than this
								 * id have ended; 0: the record gives no such
								 * id */
} HeraldWalRunning;

/* Can this transaction or subtransaction still commit?  is_prepared: is the transaction prepared? */
extern bool herald_wal_running_includes(HeraldWalRunning running, uint32_t xid, bool is_prepared);

#endif							/* HERALD_WAL_RUNNING_H */
