/*-------------------------------------------------------------------------
 *
 * wal_reader.h
 *	  Reads this server's WAL record by record: on a standby up to the replay position, on a primary up to the flush
 *	  position.
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
	HERALD_WAL_READ_RECORD,		/* a record was read: see
								 * herald_wal_reader_record() */
	HERALD_WAL_READ_END,		/* there are no more records to read now */
	HERALD_WAL_READ_GONE		/* the WAL is missing or cannot be read: see
								 * herald_wal_reader_reason() */
} HeraldWalRead;

/*
 * Maximum total time for which one transaction waits for WAL.  A transaction waits while the name of the server's last
 * WAL file changes, and until a standby has replayed and relayed the WAL that the transaction needs.  The waits of a
 * transaction are added up, so a transaction that resumes many channels waits no longer than a transaction that resumes
 * one channel.
 */
#define HERALD_WAL_WAIT_MS	10000

/*
 * _left returns the number of milliseconds that are left for further waits of this transaction.  _waited notes that
 * this transaction has waited for time_ms.
 */
extern uint64 herald_wal_wait_left(void);
extern void herald_wal_waited(uint64 time_ms);

typedef struct HeraldWalReader HeraldWalReader;

/*
 * Open a reader in the current memory context.  Deleting that context closes the reader.  Unless
 * herald_wal_reader_seek_after() is called next, `from` must be the place where a record begins, or the start of a
 * page if a record ends exactly there.
 */
extern HeraldWalReader *herald_wal_reader_open(XLogRecPtr from);
extern void herald_wal_reader_close(HeraldWalReader *reader);

/*
 * Read the next record.  Passes over records that cannot concern logged notifications; but after many of these, returns
 * one of them, so that the caller can do other things.  A failure may be temporary, so the reader tries again, and
 * serves interrupts between the attempts.  If all attempts fail, the result is HERALD_WAL_READ_GONE.  Throws only what
 * interrupts throw, and out of memory for the reader itself.
 */
extern HeraldWalRead herald_wal_reader_next(HeraldWalReader *reader);

/* Returns the record that was read last.  The record is valid until the reader reads, seeks or is closed. */
extern XLogReaderState *herald_wal_reader_record(HeraldWalReader *reader);

/*
 * Returns the place where reading continues: after herald_wal_reader_next(), the end of the last record that was read
 * or passed over.
 */
extern XLogRecPtr herald_wal_reader_position(const HeraldWalReader *reader);

/* Let the reader continue at `to`, which must be the place where a record begins. */
extern void herald_wal_reader_seek(HeraldWalReader *reader, XLogRecPtr to);

/* Let the reader continue with the first record that begins at `place` or later. */
extern void herald_wal_reader_seek_after(HeraldWalReader *reader, XLogRecPtr place);

/* Returns the reason for the last HERALD_WAL_READ_GONE, as a clause for a message. */
extern const char *herald_wal_reader_reason(const HeraldWalReader *reader);

/*
 * Returns the place up to which the WAL can be read now: in recovery the replay position, since the effects of later
 * records are not visible yet; otherwise the flush position, since later records may be lost in a crash.
 */
extern XLogRecPtr herald_wal_readable_to(void);

#endif							/* HERALD_WAL_READER_H */
