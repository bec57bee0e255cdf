/*-------------------------------------------------------------------------
 *
 * wal_source.h
 *	  The logged notifications that a cursor reads from the WAL, up to a cut, before it reads the queue.
 *
 * herald_wal_source_read() copies all these notifications into a temporary file, and herald_wal_source_next() returns
 * them one by one.  src/notify/cursor/README.md says why no notification is left out at the cut, or delivered twice.
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

/*
 * A notification, or the end of a transaction.  For the end of a transaction, `entry` is NULL and `sender` is not set.
 */
typedef struct HeraldPast
{
	const HeraldEntry *entry;	/* valid until herald_wal_source_next() is
								 * called again, or the source is closed */
	TimestampTz committed_at;
	HeraldSender sender;
} HeraldPast;

/*
 * Open an empty source, in a child of the memory context `parent`.  outlives_transaction: must the source be readable
 * after the end of this transaction?  If not, the server deletes the source's file when the transaction ends.  May
 * throw.
 */
extern HeraldWalSource *herald_wal_source_open(MemoryContext parent, bool outlives_transaction);
extern void herald_wal_source_close(HeraldWalSource *source);

/*
 * Read the WAL after a token, up to a cut.  The caller has checked that the queue can be read from the cut on.  If
 * `wants` is not NULL, reading ends early, with the first transaction at whose end the witness (core/receipt.h) was met
 * and `wants` has returned true for more than wanted_max notifications.  Sets *end to the receipt of a client that has
 * received all transactions of the source.  Returns HERALD_GONE_NOTHING, or the reason why notifications cannot be
 * read.  Called once for each source.  If this function returns a reason, the caller must close the source.  If it
 * throws, the caller must close the source only if the source outlives the transaction.  In both cases, the source must
 * not be used otherwise.
 */
extern HeraldGone herald_wal_source_read(HeraldWalSource *source, const HeraldToken *token, const HeraldCut *cut,
										 HeraldListensTo wants, uint32 wanted_max, HeraldReceipt *end);

/* Returns the cut that was given to herald_wal_source_read(). */
extern const HeraldCut *herald_wal_source_cut(const HeraldWalSource *source);

/* Returns true if this token was given to herald_wal_source_read(). */
extern bool herald_wal_source_is_after(const HeraldWalSource *source, const HeraldToken *token);

/*
 * Returns true if the source has all notifications on the channel in the part of the WAL that the source has read;
 * false if the channel's setting has changed in this part, after the token.
 */
extern bool herald_wal_source_covers(const HeraldWalSource *source, const char *channel);

/* Get the next notification, or the next end of a transaction.  Returns false if there are no more.  May throw. */
extern bool herald_wal_source_next(HeraldWalSource *source, HeraldPast *past);

/* Returns the receipt of a client that has received the transactions whose ends herald_wal_source_next() returned. */
extern HeraldReceipt herald_wal_source_receipt(const HeraldWalSource *source);

#endif							/* HERALD_WAL_SOURCE_H */
