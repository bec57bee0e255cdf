/*-------------------------------------------------------------------------
 *
 * large_writer.h
 *	  The file of a large transaction: its owner's side.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_WRITER_H
#define HERALD_LARGE_WRITER_H

#include "postgres.h"

#include "base/channel_hash.h"
#include "core/queue.h"
#include "storage/fd.h"

/*
 * Create a file for this transaction.  Sets *number before any failure that requires
 * herald_large_writer_forget().  May throw.
 */
extern File herald_large_writer_create(uint64 *number);

/*
 * The file of an open transaction is about to grow by `bytes`: count them.  If they do not fit
 * within herald.max_queue_size, the oldest data is given up; if that is not enough, throws,
 * unless `forced`.
 */
extern void herald_large_writer_grow(uint64 number, uint64 bytes, bool forced);

/* Maximum bytes of one transaction's file. */
extern uint64 herald_large_writer_bytes_max(void);

/* The file is complete, with this number of bytes.  May throw. */
extern void herald_large_writer_complete(uint64 number, uint64 bytes);

/* The reference, to channels of these sets, has its place in the queue.  Never throws. */
extern void herald_large_writer_place(uint64 number, HeraldPosition position, HeraldChannelSets sets);

/*
 * The file is not needed: have it deleted.  Its batch, if there is one, must not be finished yet,
 * or else another process may have deleted the file.  The file must be closed.  Never throws.
 */
extern void herald_large_writer_forget(uint64 number);

#endif							/* HERALD_LARGE_WRITER_H */
