/*-------------------------------------------------------------------------
 *
 * wal_record.h
 *	  What the server's own records in the WAL say of transactions, runs and databases.
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

/* The end of a transaction and its subtransactions.  Valid until the next record is read. */
typedef struct HeraldWalEnd
{
	enum
	{
		HERALD_WAL_END_NONE,	/* the record is about something else */
		HERALD_WAL_END_COMMIT,	/* also of a prepared transaction */
		HERALD_WAL_END_ABORT,
		HERALD_WAL_END_PREPARE
	}			kind;
	TransactionId xid;
	int			subtransactions;
	const TransactionId *subxids;
	TimestampTz committed_at;	/* of a commit */
} HeraldWalEnd;

extern HeraldWalEnd herald_wal_record_end(XLogReaderState *record);

/* Is it a commit record, also of a prepared transaction? */
extern bool herald_wal_record_is_commit(XLogReaderState *record);

/* Does a run of a server begin behind it: is it a checkpoint at shutdown, or the end of a recovery? */
extern bool herald_wal_record_ends_run(XLogReaderState *record);

/* The database that is created here; InvalidOid: none is. */
extern Oid	herald_wal_record_created(XLogReaderState *record);

#endif							/* HERALD_WAL_RECORD_H */
