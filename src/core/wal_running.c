/*-------------------------------------------------------------------------
 *
 * wal_running.c
 *	  Which transactions that have written into the WAL can still commit.
 *
 * A transaction that is rolled back has an abort record, except when the server ends without writing
 * one.  The next run of the server begins with a checkpoint at shutdown, or with the end of a
 * recovery; after that only prepared transactions are left.  Lists of running transactions, which
 * the server writes from time to time, include the prepared ones, so all transactions older than the
 * oldest one in a list have ended.  A subtransaction is younger than its transaction, which is in
 * the list.
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
