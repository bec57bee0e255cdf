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
	HERALD_WAL_READ_END,		/* no more for the moment */
	HERALD_WAL_READ_GONE		/* it can be read no more: see herald_wal_reader_reason() */
} HeraldWalRead;

/*
 * How long WAL is waited for that is not there: the server's last file while its name changes; what
 * a standby has not replayed yet, and a client that comes from elsewhere has received.  All waits of a
 * transaction together: a client that resumes many channels waits no longer than for one.
 */
#define HERALD_WAL_WAIT_MS	10000

/* left: the part of it that this transaction may still wait; outside of a transaction, all of it.  waited: add a wait of this length. */
extern uint64 herald_wal_wait_left(void);
extern void herald_wal_waited(uint64 time_ms);

typedef struct HeraldWalReader HeraldWalReader;

/*
 * A reader in the current memory context, whose end closes it.  A record begins at `from`, or
 * `from` is the start of a page and the end of the record before.
 */
extern HeraldWalReader *herald_wal_reader_open(XLogRecPtr from);
extern void herald_wal_reader_close(HeraldWalReader *reader);

/*
 * Read the next record; some that cannot concern logged notifications are passed over.  Errors
 * while reading are results; only running out of memory for that is thrown.  After a failure that
 * may pass it tries again, and serves interrupts meanwhile.
 */
extern HeraldWalRead herald_wal_reader_next(HeraldWalReader *reader);

/* The record that was read; valid until the next call for this reader. */
extern XLogReaderState *herald_wal_reader_record(HeraldWalReader *reader);

/* The end of the last record, also of one that was passed over: here the next one begins. */
extern XLogRecPtr herald_wal_reader_position(const HeraldWalReader *reader);

/* Continue elsewhere, where a record begins. */
extern void herald_wal_reader_seek(HeraldWalReader *reader, XLogRecPtr to);

/* Continue with the first record that begins at this place or after it. */
extern void herald_wal_reader_seek_after(HeraldWalReader *reader, XLogRecPtr place);

/* Why it can be read no more. */
extern const char *herald_wal_reader_reason(const HeraldWalReader *reader);

/*
 * How far it can be read now: in recovery as far as it has been replayed, since what comes after
 * that is not visible yet; else as far as it has been flushed, since the rest may never happen.
 */
extern XLogRecPtr herald_wal_readable_to(void);

#endif							/* HERALD_WAL_READER_H */
