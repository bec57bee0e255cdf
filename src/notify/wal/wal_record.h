/*-------------------------------------------------------------------------
 *
 * wal_record.h
 *	  Reads facts about transactions, runs and databases from the server's own records in the WAL.
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

/*
 * What a record says about the commit, the abort or the PREPARE of a transaction and its subtransactions.  Valid until
 * the next record is read.
 */
typedef struct HeraldWalEnd
{
	enum
	{
		HERALD_WAL_END_NONE,	/* the record is of another kind */
		HERALD_WAL_END_COMMIT,	/* a commit, or COMMIT PREPARED */
		HERALD_WAL_END_ABORT,
		HERALD_WAL_END_PREPARE
	}			kind;
	TransactionId xid;
	int			subtransactions;
	const TransactionId *subxids;
	TimestampTz committed_at;	/* set for a commit only */
} HeraldWalEnd;

extern HeraldWalEnd herald_wal_record_end(XLogReaderState *record);

/* Is this the record of a commit or of a COMMIT PREPARED? */
extern bool herald_wal_record_is_commit(XLogReaderState *record);

/*
 * Does a new run of the server begin after this record?  Returns true for a shutdown checkpoint and for an end of
 * recovery.
 */
extern bool herald_wal_record_ends_run(XLogReaderState *record);

/* Returns the database that this record creates; InvalidOid: the record creates no database. */
extern Oid	herald_wal_record_created(XLogReaderState *record);

#endif							/* HERALD_WAL_RECORD_H */
