/*-------------------------------------------------------------------------
 *
 * wal_record.c
 *	  Reads facts about transactions, runs and databases from the server's own records in the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_control.h"
#include "commands/dbcommands_xlog.h"

#include "notify/wal/wal_record.h"


HeraldWalEnd
herald_wal_record_end(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record);
	TransactionId xid = XLogRecGetXid(record);
	char	   *data = XLogRecGetData(record);
	xl_xact_parsed_commit commit;
	xl_xact_parsed_abort aborted;
	xl_xact_parsed_prepare prepared;
	HeraldWalEnd end = {HERALD_WAL_END_NONE};

	if (XLogRecGetRmid(record) != RM_XACT_ID)
		return end;
	switch (info & XLOG_XACT_OPMASK)
	{
		case XLOG_XACT_COMMIT:
		case XLOG_XACT_COMMIT_PREPARED:
			ParseCommitRecord(info, (xl_xact_commit *) data, &commit);
			end.kind = HERALD_WAL_END_COMMIT;
			end.xid = TransactionIdIsValid(commit.twophase_xid) ? commit.twophase_xid : xid;
			end.subtransactions = commit.nsubxacts;
			end.subxids = commit.subxacts;
			end.committed_at = commit.xact_time;
			break;
		case XLOG_XACT_ABORT:
		case XLOG_XACT_ABORT_PREPARED:
			ParseAbortRecord(info, (xl_xact_abort *) data, &aborted);
			end.kind = HERALD_WAL_END_ABORT;
			end.xid = TransactionIdIsValid(aborted.twophase_xid) ? aborted.twophase_xid : xid;
			end.subtransactions = aborted.nsubxacts;
			end.subxids = aborted.subxacts;
			break;
		case XLOG_XACT_PREPARE:
			ParsePrepareRecord(info, (xl_xact_prepare *) data, &prepared);
			end.kind = HERALD_WAL_END_PREPARE;
			end.xid = prepared.twophase_xid;
			end.subtransactions = prepared.nsubxacts;
			end.subxids = prepared.subxacts;
			break;
		default:
			break;
	}
	return end;
}

bool
herald_wal_record_is_commit(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & XLOG_XACT_OPMASK;

	return XLogRecGetRmid(record) == RM_XACT_ID &&
		(info == XLOG_XACT_COMMIT || info == XLOG_XACT_COMMIT_PREPARED);
}

bool
herald_wal_record_ends_run(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	return XLogRecGetRmid(record) == RM_XLOG_ID &&
		(info == XLOG_CHECKPOINT_SHUTDOWN || info == XLOG_END_OF_RECOVERY);
}

Oid
herald_wal_record_created(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	if (XLogRecGetRmid(record) != RM_DBASE_ID)
		return InvalidOid;
	if (info == XLOG_DBASE_CREATE_WAL_LOG)
		return ((xl_dbase_create_wal_log_rec *) XLogRecGetData(record))->db_id;
	if (info == XLOG_DBASE_CREATE_FILE_COPY)
	{
		xl_dbase_create_file_copy_rec *copy = (xl_dbase_create_file_copy_rec *) XLogRecGetData(record);

		/*
		 * When a database is moved to another tablespace, the record has the
		 * same database as source and as copy, and no database is created.
		 */
		return copy->db_id != copy->src_db_id ? copy->db_id : InvalidOid;
	}
	return InvalidOid;
}
