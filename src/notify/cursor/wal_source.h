/*-------------------------------------------------------------------------
 *
 * wal_source.h
 *	  The logged notifications that a cursor reads before the queue: from the WAL, up to a cut.
 *
 * They are read at once, into a temporary file, and then taken from there one after the other.
 * src/notify/cursor/README.md says why nothing is missing or doubled at the cut.
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

/* One notification; or, with entry == NULL, the end of a transaction. */
typedef struct HeraldPast
{
	const HeraldEntry *entry;	/* valid until the next call */
	TimestampTz committed_at;
} HeraldPast;

/*
 * Open an empty source in this memory context.  outlives_transaction: its file lasts until it is closed;
 * else until the transaction ends, at the latest.  May throw.
 */
extern HeraldWalSource *herald_wal_source_open(MemoryContext parent, bool outlives_transaction);
extern void herald_wal_source_close(HeraldWalSource *source);

/*
 * Read the WAL after a token, up to a cut.  The caller has the queue kept from the cut on before.  wants: reading may end
 * earlier, after a transaction, when it has met more than wanted_max notifications that are wanted; NULL: it does not.
 * Gone: the source is still empty.  May throw.
 */
extern HeraldGone herald_wal_source_read(HeraldWalSource *source, const HeraldToken *token, const HeraldCut *cut,
										 HeraldListensTo wants, uint32 wanted_max);

/* The cut up to which the source was read; NULL: it is empty. */
extern const HeraldCut *herald_wal_source_cut(const HeraldWalSource *source);

/* Is this the token after which the source was read? */
extern bool herald_wal_source_is_after(const HeraldWalSource *source, const HeraldToken *token);

/* Does the source have everything that was sent on the channel?  Not if the channel's setting has changed in between. */
extern bool herald_wal_source_covers(const HeraldWalSource *source, const char *channel);

/* The next notification, from the first on.  False: there are no more.  May throw. */
extern bool herald_wal_source_next(HeraldWalSource *source, HeraldPast *past);

/* The receipt of a client that has received every transaction that has ended; and of one that has received all. */
extern HeraldReceipt herald_wal_source_receipt(const HeraldWalSource *source);
extern HeraldReceipt herald_wal_source_end(const HeraldWalSource *source);

#endif							/* HERALD_WAL_SOURCE_H */
