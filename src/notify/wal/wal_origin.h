/*-------------------------------------------------------------------------
 *
 * wal_origin.h
 *	  Which messages in the WAL are pg_herald's own.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_ORIGIN_H
#define HERALD_WAL_ORIGIN_H

#include "postgres.h"

#include "access/xlogreader.h"

/* The prefix of pg_herald's logical messages.  Any user can write messages with this prefix. */
#define HERALD_WAL_PREFIX	"pg_herald"

/* Whether a logical message in the WAL is pg_herald's own. */
typedef enum HeraldWalOrigin
{
	HERALD_WAL_FOREIGN,			/* not a logical message, or one with another
								 * prefix */
	HERALD_WAL_FORGED,			/* our prefix, but pg_herald did not write it */
	HERALD_WAL_OURS
} HeraldWalOrigin;

/* A message that pg_herald has written, or a forged message, as it is in its record. */
typedef struct HeraldWalText
{
	Oid			database;		/* InvalidOid: written by a process without a
								 * database */
	bool		transactional;
	const char *text;			/* valid as long as the record; no NUL at the
								 * end */
	size_t		length;
} HeraldWalText;

/*
 * Write a pg_herald message.  transactional: as a part of the current transaction.  Returns the end
 * of the message's record; ProcLastRecPtr is the start of this record.
 */
extern XLogRecPtr herald_wal_origin_log(const char *text, size_t length, bool transactional);

/*
 * The same for a message that is not part of a transaction, and does not count as activity: a server
 * that has written nothing else makes no checkpoint, and begins no new segment by archive_timeout.
 */
extern XLogRecPtr herald_wal_origin_log_unimportant(const char *text, size_t length);

/* Is this record a message that pg_herald has written?  Fills *message unless the result is HERALD_WAL_FOREIGN. */
extern HeraldWalOrigin herald_wal_origin_check(XLogReaderState *record, HeraldWalText *message);

#endif							/* HERALD_WAL_ORIGIN_H */
