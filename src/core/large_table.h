/*-------------------------------------------------------------------------
 *
 * large_table.h
 *	  The table of large transactions' files.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LARGE_TABLE_H
#define HERALD_LARGE_TABLE_H

#include "queue_layout.h"

/* Maximum number of files. */
#ifndef HERALD_LARGE_FILES_MAX
#define HERALD_LARGE_FILES_MAX		8192
#endif

/* Number of sets that the channels of all databases are divided into; each set is a bit. */
#define HERALD_CHANNEL_SETS		64

/* The position of a reference that has no place in the queue yet. */
#define HERALD_NOT_PLACED		UINT64_MAX

/* The number of a file that never exists: stands for notifications that no process could read. */
#define HERALD_GAP_FILE		UINT64_MAX

/*
 * An entry never moves in the table, so that the file's owner can store the position without
 * the lock: other sessions are waiting for the batch, and the holder of the lock may be
 * writing to a disk that hangs.
 */
typedef struct HeraldLargeFile
{
	_Atomic uint64_t number;	/* 0: free */
	_Atomic uint64_t position;	/* of the reference */
	_Atomic uint64_t bytes;		/* written by its owner, before it has a
								 * position */
	_Atomic uint64_t sets;		/* of channels; written likewise */
	_Atomic uint32_t role;		/* the transaction's role */
} HeraldLargeFile;

typedef struct HeraldLargeTable
{
	_Atomic uint64_t bytes;		/* of all files */

	/* Written by the spiller. */
	uint64_t	last_number;
	_Atomic int count;
	_Atomic int used;			/* all entries from here on are free */
	HeraldLargeFile files[HERALD_LARGE_FILES_MAX];	/* in no particular order */
} HeraldLargeTable;

extern void herald_large_table_init(HeraldLargeTable *table);

/*
 * Take an entry for a transaction of this role.  Returns the file's number; 0: the table is
 * full.  By the spiller.
 */
extern uint64_t herald_large_table_enter(HeraldLargeTable *table, uint32_t role);

/*
 * Functions for the file's owner.  The file remains in the table until its batch is finished,
 * so false means that memory was damaged.
 *
 * has: is the file in the table?  size: its bytes.  grow: count `bytes` more bytes; also false
 * if all files together would exceed bytes_max.  complete: set the file's final size.  place:
 * set the position of its reference, and the sets of its channels; position 0: no listener
 * will read it.
 */
extern bool herald_large_table_has(HeraldLargeTable *table, uint64_t number);
extern uint64_t herald_large_table_size(HeraldLargeTable *table, uint64_t number);
extern bool herald_large_table_grow(HeraldLargeTable *table, uint64_t number, uint64_t bytes, uint64_t bytes_max);
extern bool herald_large_table_complete(HeraldLargeTable *table, uint64_t number, uint64_t bytes);
extern bool herald_large_table_place(HeraldLargeTable *table, uint64_t number, HeraldPosition position,
									 uint64_t sets);

/*
 * Take the files whose references lie below `position` out of the table, and call `remove` for
 * each; stores the highest of their positions for each set of channels in the zeroed array
 * `removed`.  By the spiller.
 */
extern void herald_large_table_remove_below(HeraldLargeTable *table, HeraldPosition position,
											HeraldPosition removed[HERALD_CHANNEL_SETS],
											void (*remove) (uint64_t number, uint64_t bytes));

/* The position of the oldest file's reference; HERALD_NOT_PLACED: none.  By the spiller. */
extern HeraldPosition herald_large_table_oldest(HeraldLargeTable *table);

/* The number of files, including those of open transactions; and their bytes.  By any process. */
extern int	herald_large_table_count(HeraldLargeTable *table);
extern uint64_t herald_large_table_bytes(HeraldLargeTable *table);

/*
 * Bytes of the files whose references lie at `position` or above, or have no place in the
 * queue yet; of those of open transactions: of all of them, and of one role's; and of those
 * between two positions.  By any process; approximate.
 */
extern uint64_t herald_large_table_bytes_from(HeraldLargeTable *table, HeraldPosition position);
extern uint64_t herald_large_table_bytes_open(HeraldLargeTable *table);
extern uint64_t herald_large_table_bytes_open_of(HeraldLargeTable *table, uint32_t role);
extern uint64_t herald_large_table_bytes_between(HeraldLargeTable *table, HeraldPosition from, HeraldPosition to);

#endif							/* HERALD_LARGE_TABLE_H */
