/*-------------------------------------------------------------------------
 *
 * wal_source.h
 *	  The logged notifications that a cursor reads from the WAL, up to a cut, before it reads the queue.
 *
 * All these notifications are read at once, into a temporary file, and then taken from the
 * file one by one.  src/notify/cursor/README.md says why no notification is missing or doubled
 * at the cut.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_SOURCE_H
#define HERALD_WAL_SOURCE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/queue_layout.h"
#include "core/queue_reader.h"
#include "core/receipt.h"
#include "notify/cursor/cut.h"
#include "notify/position/gone.h"
#include "notify/position/token.h"

typedef struct HeraldWalSource HeraldWalSource;

/* One notification, or the end of a transaction if entry is NULL. */
typedef struct HeraldPast
{
	const HeraldEntry *entry;	/* valid until the next HeraldPast is returned */
	TimestampTz committed_at;
} HeraldPast;

/*
 * Open an empty source in this memory context.  outlives_transaction: the source's file exists until the
 * source is closed; otherwise until the transaction ends, at the latest.  May throw.
 */
extern HeraldWalSource *herald_wal_source_open(MemoryContext parent, bool outlives_transaction);
extern void herald_wal_source_close(HeraldWalSource *source);

/*
 * Read the WAL after a token, up to a cut.  The caller has checked that the queue can be read from the cut on.  wants:
 * reading may end earlier, at the end of a transaction, after more than wanted_max notifications for which `wants` is
 * true; NULL: reading does not end earlier.  *end: the receipt of a client that has received all transactions of the
 * source.  Once for each source: if it is gone, or throws, the caller closes the source.
 */
extern HeraldGone herald_wal_source_read(HeraldWalSource *source, const HeraldToken *token, const HeraldCut *cut,
										 HeraldListensTo wants, uint32 wanted_max, HeraldReceipt *end);

/* The cut up to which the source has read the WAL. */
extern const HeraldCut *herald_wal_source_cut(const HeraldWalSource *source);

/* Is this the token after which the source has read the WAL? */
extern bool herald_wal_source_is_after(const HeraldWalSource *source, const HeraldToken *token);

/* Does the source have all notifications on the channel?  False if the channel's setting changed after the token. */
extern bool herald_wal_source_covers(const HeraldWalSource *source, const char *channel);

/* The next notification or end of a transaction.  False: no more.  May throw. */
extern bool herald_wal_source_next(HeraldWalSource *source, HeraldPast *past);

/* The receipt of a client that has received all transactions of which herald_wal_source_next() has returned the end. */
extern HeraldReceipt herald_wal_source_receipt(const HeraldWalSource *source);

#endif							/* HERALD_WAL_SOURCE_H */
