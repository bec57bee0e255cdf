/*-------------------------------------------------------------------------
 *
 * wal_reader.h
 *	  Reads this server's WAL, record by record, as far as it can be relied on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_READER_H
#define HERALD_WAL_READER_H

#include "postgres.h"

#include "access/xlogreader.h"

typedef enum HeraldWalRead
{
	HERALD_WAL_READ_RECORD,		/* see herald_wal_reader_record() */
	HERALD_WAL_READ_END,		/* no more WAL for the moment */
	HERALD_WAL_READ_GONE		/* the WAL is missing or cannot be read: see
								 * herald_wal_reader_reason() */
} HeraldWalRead;

/*
 * Maximum total time that one transaction waits for WAL: for the server's last file while the file's name changes, and
 * for a standby to replay and relay what the transaction needs.  So a client that resumes many channels waits no longer
 * than a client that resumes one channel.
 */
#define HERALD_WAL_WAIT_MS	10000

/* _left returns how many milliseconds this transaction may still wait.  _waited: this transaction has waited for time_ms. */
extern uint64 herald_wal_wait_left(void);
extern void herald_wal_waited(uint64 time_ms);

typedef struct HeraldWalReader HeraldWalReader;

/*
 * Open a reader in the current memory context; deleting that context closes the reader.  A record
 * begins at `from`, or `from` is both the start of a page and the end of a record.
 */
extern HeraldWalReader *herald_wal_reader_open(XLogRecPtr from);
extern void herald_wal_reader_close(HeraldWalReader *reader);

/*
 * Read the next record; some records that cannot concern logged notifications are passed over.  Errors
 * while reading are not thrown, but make the result HERALD_WAL_READ_GONE; only a lack of memory for the
 * reader itself is thrown.  A failure may be temporary, so reading is tried again; meanwhile interrupts are served.
 */
extern HeraldWalRead herald_wal_reader_next(HeraldWalReader *reader);

/* The record that was read; valid until the next call for this reader. */
extern XLogReaderState *herald_wal_reader_record(HeraldWalReader *reader);

/* Where reading continues.  After herald_wal_reader_next(): the end of the last record that was read or passed over. */
extern XLogRecPtr herald_wal_reader_position(const HeraldWalReader *reader);

/* Continue at `to`, where a record begins. */
extern void herald_wal_reader_seek(HeraldWalReader *reader, XLogRecPtr to);

/* Continue with the first record that begins at this place or after it. */
extern void herald_wal_reader_seek_after(HeraldWalReader *reader, XLogRecPtr place);

/* Why herald_wal_reader_next() has returned HERALD_WAL_READ_GONE, as a clause for a message. */
extern const char *herald_wal_reader_reason(const HeraldWalReader *reader);

/*
 * How far the WAL can be read now: in recovery up to the replay position, since later commits are not visible yet;
 * else up to the flush position, since later commits may be lost in a crash.
 */
extern XLogRecPtr herald_wal_readable_to(void);

#endif							/* HERALD_WAL_READER_H */
