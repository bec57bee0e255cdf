/*-------------------------------------------------------------------------
 *
 * wal_running.c
 *	  Which transactions that have written into the WAL can still commit.
 *
 * A transaction that is rolled back has an abort record, unless the server has ended without writing this record.
 * Between two runs of the server, the WAL has the record of a shutdown checkpoint or of an end of recovery.  After
 * this record, only prepared transactions of earlier runs can still commit.  From time to time, the server also writes
 * a list of running transactions, which includes prepared transactions.  All transactions that are older than the
 * oldest transaction in the list have ended.  So have all older subtransactions, since a subtransaction is younger
 * than its transaction.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_running.h"

#include "xid.h"


bool
herald_wal_running_includes(HeraldWalRunning running, uint32_t xid, bool is_prepared)
{
	if (running.only_prepared && !is_prepared)
		return false;
	return running.oldest == 0 || !herald_xid_precedes(xid, running.oldest);
}
