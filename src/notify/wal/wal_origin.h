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

/* The prefix of our logical messages. Any user can write messages with it. */
#define HERALD_WAL_PREFIX	"pg_herald"

/* Whether a logical message in the WAL is pg_herald's own. */
typedef enum HeraldWalOrigin
{
	HERALD_WAL_FOREIGN,			/* not a logical message, or one with another
								 * prefix */
	HERALD_WAL_FORGED,			/* our prefix, but pg_herald did not write it */
	HERALD_WAL_OURS
} HeraldWalOrigin;

/* A message of ours or a forged one, as it is in the record. */
typedef struct HeraldWalText
{
	Oid			database;		/* InvalidOid: written by a process without a
								 * database */
	bool		transactional;
	const char *text;			/* valid as long as the record; not terminated */
	size_t		length;
} HeraldWalText;

/*
 * Write a message of ours, in the current transaction if it is transactional.  Returns the end
 * of its record; ProcLastRecPtr is its start.
 */
extern XLogRecPtr herald_wal_origin_log(const char *text, size_t length, bool transactional);

/*
 * Write a message of ours that is not part of a transaction, and that does not count as activity:
 * an idle server makes no checkpoint, and begins no new segment, because of it.
 */
extern XLogRecPtr herald_wal_origin_log_unimportant(const char *text, size_t length);

/* Is this record a message of ours?  Fills *message unless it is foreign. */
extern HeraldWalOrigin herald_wal_origin_check(XLogReaderState *record, HeraldWalText *message);

#endif							/* HERALD_WAL_ORIGIN_H */
