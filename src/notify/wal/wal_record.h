/*-------------------------------------------------------------------------
 *
 * wal_record.h
 *	  What the server's own records in the WAL say about transactions, runs and databases.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_RECORD_H
#define HERALD_WAL_RECORD_H

#include "postgres.h"

#include "access/xlogreader.h"
#include "datatype/timestamp.h"

/* What a record says about the end of a transaction and its subtransactions.  Valid until the next record is read. */
typedef struct HeraldWalEnd
{
	enum
	{
		HERALD_WAL_END_NONE,	/* the record is about something else */
		HERALD_WAL_END_COMMIT,	/* including COMMIT PREPARED */
		HERALD_WAL_END_ABORT,
		HERALD_WAL_END_PREPARE
	}			kind;
	TransactionId xid;
	int			subtransactions;
	const TransactionId *subxids;
	TimestampTz committed_at;	/* set for a commit only */
} HeraldWalEnd;

extern HeraldWalEnd herald_wal_record_end(XLogReaderState *record);

/* Is this a commit record, including that of a prepared transaction? */
extern bool herald_wal_record_is_commit(XLogReaderState *record);

/* Does a run of a server begin after this record?  True for a checkpoint at shutdown, and for the end of a recovery. */
extern bool herald_wal_record_ends_run(XLogReaderState *record);

/* Returns the database that this record creates; InvalidOid: it creates none. */
extern Oid	herald_wal_record_created(XLogReaderState *record);

#endif							/* HERALD_WAL_RECORD_H */
