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

/* What a record says of all transactions that have written earlier records. */
typedef struct HeraldWalRunning
{
	bool		only_prepared;	/* only prepared ones can still commit: a run
								 * of the server has ended */
	uint32_t	oldest;			/* all older than this one have ended; 0: not
								 * known */
} HeraldWalRunning;

/* Can this transaction, or subtransaction, still commit? */
extern bool herald_wal_running_includes(HeraldWalRunning running, uint32_t xid, bool is_prepared);

#endif							/* HERALD_WAL_RUNNING_H */
