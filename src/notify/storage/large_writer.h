/*-------------------------------------------------------------------------
 *
 * large_writer.h
 *	  The file of a transaction that is too large for a segment: its owner's side.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_WRITER_H
#define HERALD_LARGE_WRITER_H

#include "postgres.h"

#include "base/channel_sets.h"
#include "core/queue.h"
#include "storage/fd.h"

/*
 * A new file for this transaction.  Sets *number before it can fail in a way
 * that needs herald_large_writer_forget().  May throw.
 */
extern File herald_large_writer_create(uint64 *number);

/*
 * The file of an open transaction is to have that many bytes more: count them.
 * If there is no room for them within herald.max_queue_size, what is oldest gives
 * way, and if that is not enough this throws; not if it is `forced`.
 */
extern void herald_large_writer_grow(uint64 number, uint64 bytes, bool forced);

/* What one transaction may have in its file. */
extern uint64 herald_large_writer_bytes_max(void);

/* The file is complete, and has that many bytes.  May throw. */
extern void herald_large_writer_complete(uint64 number, uint64 bytes);

/* The reference, to channels of these sets, has its place in the queue.  Never throws. */
extern void herald_large_writer_place(uint64 number, HeraldPosition position, HeraldChannelSets sets);

/*
 * The transaction was rolled back, and its batch, if it has one, is not finished
 * yet: nobody else has deleted the file.  It is closed.  Never throws.
 */
extern void herald_large_writer_forget(uint64 number);

#endif							/* HERALD_LARGE_WRITER_H */
