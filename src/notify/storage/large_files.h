/*-------------------------------------------------------------------------
 *
 * large_files.h
 *	  The table of large transactions' files.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_FILES_H
#define HERALD_LARGE_FILES_H

#include "postgres.h"

#include "base/channel_hash.h"
#include "core/retention.h"

/* The position of a reference that has no place in the queue yet. */
#define HERALD_NOT_PLACED		PG_UINT64_MAX

/* Shared memory, for memory.c. */
extern Size herald_large_files_shared_size(void);
extern void herald_large_files_shared_init(void);

/*
 * Take an entry of the table.  Returns the file's number; 0: the table is full.  A file is
 * larger than a segment, or its transaction is still open.  So the queue's limit is reached
 * before the table is full, unless the limit is very large or herald.queue_memory small.
 * Under spill_lock.
 */
extern uint64 herald_large_files_enter(Oid role);

/*
 * Functions for the file's owner.  The file remains in the table until its batch is finished,
 * so false means that memory was damaged.  None of them throws.
 *
 * has: is the file in the table?  size: its bytes.  grow: count `bytes` more bytes; also false
 * if all files together would exceed bytes_max.  complete: set the file's final size.  place:
 * set the position of its reference, and the sets of its channels; position 0: no listener
 * will read it.
 */
extern bool herald_large_files_has(uint64 number);
extern uint64 herald_large_files_size(uint64 number);
extern bool herald_large_files_grow(uint64 number, uint64 bytes, uint64 bytes_max);
extern bool herald_large_files_complete(uint64 number, uint64 bytes);
extern bool herald_large_files_place(uint64 number, HeraldPosition position, HeraldChannelSets sets);

/*
 * Remove the files whose references lie below `position` from the table, and have them
 * deleted; stores the highest of their positions for each set of channels.  Under spill_lock.
 */
extern void herald_large_files_delete_below(HeraldPosition position,
											HeraldPosition removed[HERALD_CHANNEL_SETS]);

/* The position of the oldest file's reference; PG_UINT64_MAX: none.  Under spill_lock. */
extern HeraldPosition herald_large_files_oldest(void);

/* The number of files, including those of open transactions; and their bytes. */
extern int	herald_large_files_count(void);
extern uint64 herald_large_files_bytes(void);

/*
 * Bytes of the files whose references lie at `position` or above, or have no place in the
 * queue yet.
 */
extern uint64 herald_large_files_bytes_from(HeraldPosition position);

/* Bytes of the files of open transactions: of all of them, and of one role's. */
extern uint64 herald_large_files_bytes_open(void);
extern uint64 herald_large_files_bytes_open_of(Oid role);

/*
 * Bytes of the files whose references lie between two positions.  By any process; approximate.
 */
extern uint64 herald_large_files_bytes_between(HeraldPosition from, HeraldPosition to);

/* Copy bytes of a file.  A HeraldReadFile; by a listener, in a transaction. */
extern bool herald_large_files_read(uint64 number, uint64 offset, uint64 length, char *to);

#endif							/* HERALD_LARGE_FILES_H */
