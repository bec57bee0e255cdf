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

/* Has pg_herald written a record in the WAL? */
typedef enum HeraldWalOrigin
{
	HERALD_WAL_FOREIGN,			/* not a logical message, or a logical message
								 * with another prefix */
	HERALD_WAL_FORGED,			/* a logical message with our prefix that
								 * pg_herald has not written */
	HERALD_WAL_OURS
} HeraldWalOrigin;

/* A logical message with our prefix, either written by pg_herald or forged. */
typedef struct HeraldWalText
{
	Oid			database;		/* the database of the writing process;
								 * InvalidOid: the process had no database */
	bool		transactional;
	const char *text;			/* has no NUL at the end; points into the
								 * record, unless reorder.c has copied the
								 * text */
	size_t		length;
} HeraldWalText;

/*
 * Write a message of pg_herald into the WAL.  transactional: the message has an effect only if the current transaction
 * commits.  Returns the end of the message's record.  Sets ProcLastRecPtr to the start of this record.
 */
extern XLogRecPtr herald_wal_origin_log(const char *text, size_t length, bool transactional);

/*
 * Do the same as herald_wal_origin_log(), but the message is not transactional, and its record does not count as
 * activity of the server: a server that writes only such records makes no checkpoint, and begins no new WAL segment at
 * archive_timeout.
 */
extern XLogRecPtr herald_wal_origin_log_unimportant(const char *text, size_t length);

/* Returns whether pg_herald has written this record.  Fills *message unless the result is HERALD_WAL_FOREIGN. */
extern HeraldWalOrigin herald_wal_origin_check(XLogReaderState *record, HeraldWalText *message);

#endif							/* HERALD_WAL_ORIGIN_H */
