/*-------------------------------------------------------------------------
 *
 * large.h
 *	  The files of transactions that are too large for a segment of the log.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_H
#define HERALD_LARGE_H

#include "postgres.h"

#include "core/log.h"
#include "storage/fd.h"

/* Shared memory, for shared.c. */
extern Size herald_large_shared_size(void);
extern void herald_large_shared_init(void);

/*
 * A new file for this transaction.  Sets *number before it can fail in a way
 * that needs herald_large_forget().  May throw.
 */
extern File herald_large_create(uint64 *number);

/*
 * The file of an open transaction is to have that many bytes more: count them.
 * If there is no room for them within herald.max_queue_size, what is oldest gives
 * way, and if that is not enough this throws; not if it is `forced`.
 */
extern void herald_large_grow(uint64 number, uint64 bytes, bool forced);

/* What one transaction may have in its file. */
extern uint64 herald_large_transaction_max(void);

/* The file is complete, and has that many bytes.  May throw. */
extern void herald_large_complete(uint64 number, uint64 bytes);

/* The reference has its place in the log.  Never throws. */
extern void herald_large_place(uint64 number, HeraldPosition position);

/*
 * The transaction was rolled back, and its batch, if it has one, is not finished
 * yet: nobody else has deleted the file.  It is closed.  others_wait: there is such
 * a batch, so the watchdog deletes the file.  Never throws.
 */
extern void herald_large_forget(uint64 number, bool others_wait);

/*
 * Take the files whose references lie below `position` out of the table, to be
 * deleted.  Under spill_lock.  False: there are none.
 */
extern bool herald_large_delete_below(HeraldPosition position);

/* The oldest file's reference; PG_UINT64_MAX: none.  Under spill_lock. */
extern HeraldPosition herald_large_oldest(void);

/* How many there are, those of open transactions included; and their bytes. */
extern int	herald_large_count(void);
extern uint64 herald_large_bytes(void);

/* Bytes of those whose references lie at a position or above, or have no place in the log yet. */
extern uint64 herald_large_bytes_from(HeraldPosition position);

/* Bytes of those whose transactions are open. */
extern uint64 herald_large_bytes_open(void);

/* Bytes of those whose references lie from one position up to another.  By anybody; a figure. */
extern uint64 herald_large_bytes_between(HeraldPosition from, HeraldPosition to);

/* Copy bytes of a file.  A HeraldReadFile; by a listener, in a transaction. */
extern bool herald_large_read(uint64 number, uint64 offset, uint64 length, char *to);

#endif							/* HERALD_LARGE_H */
