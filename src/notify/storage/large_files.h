/*-------------------------------------------------------------------------
 *
 * large_files.h
 *	  The files of transactions that are too large for a segment of the queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_FILES_H
#define HERALD_LARGE_FILES_H

#include "postgres.h"

#include "base/channel_sets.h"
#include "core/retention.h"

/* The position of a reference that has no place in the queue yet. */
#define HERALD_NOT_PLACED		PG_UINT64_MAX

/* Shared memory, for memory.c. */
extern Size herald_large_files_shared_size(void);
extern void herald_large_files_shared_init(void);

/*
 * A place in the table, and a number; 0: there is none left.  A file is larger than
 * a segment, or its transaction is still open; so the table does not fill before the
 * queue's limit is reached, unless that is very large, or herald.queue_memory small.
 * Under spill_lock.
 */
extern uint64 herald_large_files_enter(Oid role);

/*
 * The owner's functions; its file remains in the table until its batch is finished,
 * so false means that memory was damaged.  None of them throws.
 *
 * has: is it there?  size: its bytes.  grow: count that many bytes more, if all files
 * together do not exceed bytes_max; false as well if they would.  complete: it
 * has that many bytes.  place: its reference is at this position, and is for channels of these sets;
 * 0: nobody will read it.
 */
extern bool herald_large_files_has(uint64 number);
extern uint64 herald_large_files_size(uint64 number);
extern bool herald_large_files_grow(uint64 number, uint64 bytes, uint64 bytes_max);
extern bool herald_large_files_complete(uint64 number, uint64 bytes);
extern bool herald_large_files_place(uint64 number, HeraldPosition position, HeraldChannelSets sets);

/*
 * Take the files whose references lie below `position` out of the table, to be
 * deleted; notes the highest of their positions for each set of channels.  Under spill_lock.
 */
extern void herald_large_files_delete_below(HeraldPosition position,
											HeraldPosition removed[HERALD_CHANNEL_SETS]);

/* The oldest file's reference; PG_UINT64_MAX: none.  Under spill_lock. */
extern HeraldPosition herald_large_files_oldest(void);

/* How many there are, those of open transactions included; and their bytes. */
extern int	herald_large_files_count(void);
extern uint64 herald_large_files_bytes(void);

/* Bytes of those whose references lie at a position or above, or have no place in the queue yet. */
extern uint64 herald_large_files_bytes_from(HeraldPosition position);

/* Bytes of those whose transactions are open: of all, and of one role's. */
extern uint64 herald_large_files_bytes_open(void);
extern uint64 herald_large_files_bytes_open_of(Oid role);

/* Bytes of those whose references lie from one position up to another.  By anybody; a figure. */
extern uint64 herald_large_files_bytes_between(HeraldPosition from, HeraldPosition to);

/* Copy bytes of a file.  A HeraldReadFile; by a listener, in a transaction. */
extern bool herald_large_files_read(uint64 number, uint64 offset, uint64 length, char *to);

#endif							/* HERALD_LARGE_FILES_H */
