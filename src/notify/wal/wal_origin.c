/*-------------------------------------------------------------------------
 *
 * wal_origin.c
 *	  How pg_herald recognizes its messages in the WAL.
 *
 * Any user can call pg_logical_emit_message() with pg_herald's prefix.  So pg_herald's messages also have a replication
 * origin that no SQL statement can set: DoNotReplicateId.  This origin needs no entry in pg_replication_origin.
 * Logical decoding passes pg_herald's messages to the output plugin, unless the plugin skips messages with an origin.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xloginsert.h"
#include "access/xlogrecord.h"
#include "replication/message.h"
#include "replication/origin.h"

#include "base/compat.h"
#include "notify/wal/wal_origin.h"


XLogRecPtr
herald_wal_origin_log(const char *text, size_t length, bool transactional)
{
	HeraldOrigin session_origin = herald_session_origin;
	volatile XLogRecPtr end = InvalidXLogRecPtr;

	PG_TRY();
	{
		herald_session_origin = DoNotReplicateId;
		end = herald_log_logical_message(HERALD_WAL_PREFIX, text, length, transactional);
	}
	PG_FINALLY();
	{
		/* The commit record must have the session's own origin. */
		herald_session_origin = session_origin;
	}
	PG_END_TRY();
	return end;
}

/* Like LogLogicalMessage(), except that the record is marked as unimportant. */
XLogRecPtr
herald_wal_origin_log_unimportant(const char *text, size_t length)
{
	HeraldOrigin session_origin = herald_session_origin;
	volatile XLogRecPtr end = InvalidXLogRecPtr;
	xl_logical_message head = {
		.dbId = MyDatabaseId,
		.transactional = false,
		.prefix_size = sizeof(HERALD_WAL_PREFIX),
		.message_size = length,
	};

	PG_TRY();
	{
		herald_session_origin = DoNotReplicateId;
		XLogBeginInsert();
		XLogRegisterData((char *) &head, SizeOfLogicalMessage);
		XLogRegisterData((char *) HERALD_WAL_PREFIX, sizeof(HERALD_WAL_PREFIX));
		XLogRegisterData((char *) text, (int) length);
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN | XLOG_MARK_UNIMPORTANT);
		end = XLogInsert(RM_LOGICALMSG_ID, XLOG_LOGICAL_MESSAGE);
	}
	PG_FINALLY();
	{
		herald_session_origin = session_origin;
	}
	PG_END_TRY();
	return end;
}

HeraldWalOrigin
herald_wal_origin_check(XLogReaderState *record, HeraldWalText *message)
{
	xl_logical_message *logged;
	size_t		room;

	if (XLogRecGetRmid(record) != RM_LOGICALMSG_ID ||
		(XLogRecGetInfo(record) & ~XLR_INFO_MASK) != XLOG_LOGICAL_MESSAGE ||
		XLogRecGetDataLen(record) < SizeOfLogicalMessage)
		return HERALD_WAL_FOREIGN;

	logged = (xl_logical_message *) XLogRecGetData(record);
	room = XLogRecGetDataLen(record) - SizeOfLogicalMessage;
	if (logged->prefix_size != sizeof(HERALD_WAL_PREFIX) || room < sizeof(HERALD_WAL_PREFIX) ||
		memcmp(logged->message, HERALD_WAL_PREFIX, sizeof(HERALD_WAL_PREFIX)) != 0 ||
		logged->message_size != room - sizeof(HERALD_WAL_PREFIX))
		return HERALD_WAL_FOREIGN;

	message->database = logged->dbId;
	message->transactional = logged->transactional;
	message->text = logged->message + sizeof(HERALD_WAL_PREFIX);
	message->length = logged->message_size;
	return XLogRecGetOrigin(record) == DoNotReplicateId ? HERALD_WAL_OURS : HERALD_WAL_FORGED;
}
