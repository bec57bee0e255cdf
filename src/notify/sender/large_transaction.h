/*-------------------------------------------------------------------------
 *
 * large_transaction.h
 *	  The file for pending notifications that do not fit into a segment.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_TRANSACTION_H
#define HERALD_LARGE_TRANSACTION_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Write entries to this transaction's file, which is created if there is none, at an offset;
 * data from there on is overwritten.  Throws when that is impossible.  is_last: if these
 * entries fit into a batch, the size limit does not apply to them, since each NOTIFY has been
 * accepted already.
 */
extern void herald_large_transaction_write(uint64 offset, const char *entries, uint64 length,
										   bool is_last);

/*
 * The entry at an offset, valid until the next call; the file has been written up to `end`.
 * NULL: it cannot be read.  Never throws.
 */
extern const HeraldEntry *herald_large_transaction_read(uint64 offset, uint64 end);

/* Copy the file's first bytes.  False: they cannot be read.  Never throws. */
extern bool herald_large_transaction_fetch(char *to, uint64 length);

/*
 * The file is complete with `length` bytes of entries: hand it to the queue.
 * May throw.
 */
extern void herald_large_transaction_publish(uint64 length);

/* The entries of the reference, after herald_large_transaction_publish(). */
extern const char *herald_large_transaction_reference(uint64 *length, uint32 *count);

/* The reference has its place in the queue.  Never throws. */
extern void herald_large_transaction_place(HeraldPosition position);

/*
 * Close the file, if there is one, and have it deleted unless it belongs to the queue and the
 * transaction is committed.  Never throws.
 */
extern void herald_large_transaction_release(bool committed);

/* At the end of the transaction: free the memory.  Never throws. */
extern void herald_large_transaction_end(void);

#endif							/* HERALD_LARGE_TRANSACTION_H */
