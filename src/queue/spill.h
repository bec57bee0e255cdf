/*-------------------------------------------------------------------------
 *
 * spill.h
 *	  The log's older part, in temporary files.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SPILL_H
#define HERALD_SPILL_H

#include "postgres.h"

#include "core/log.h"

/* Shared memory, for shared.c. */
extern Size herald_spill_shared_size(void);
extern void herald_spill_shared_init(void);

/*
 * Make room in the ring: let senders have the oldest segment, if need be after
 * writing it to a file, or, past herald.max_queue_size or when it cannot be
 * written, at the expense of the listeners that have not read it.  True: there
 * is room.  False: another process is at it, or the oldest segment is still
 * being written or dispatched.  By a sender, in its transaction, before it
 * publishes: may throw, and can block on the disk.
 */
extern bool herald_spill_make_room(void);

/* Delete the files that nobody needs.  By anybody, now and then. */
extern void herald_spill_trim(void);

/*
 * Leave room for that many bytes besides segments within herald.max_queue_size,
 * at the expense of what is oldest.  Under spill_lock.
 */
extern void herald_spill_leave_room(uint64 bytes);

/* The disk is full: give up the oldest file.  False: there is none. */
extern bool herald_spill_give_up_oldest(void);

/*
 * Copy bytes of the log that are no longer in memory, within one segment.
 * False: they are gone.  A HeraldReadSpilled; by a listener, in a transaction.
 */
extern bool herald_spill_read(HeraldPosition from, uint64 length, char *to);

/*
 * Take spill_lock.  Whoever has it may be writing to a disk that hangs: this
 * can be cancelled.  By a sender that has nothing in the log yet.  May throw.
 */
extern void herald_spill_lock(void);

/* This listener could not read a file that was not given up: as an overrun. */
extern void herald_spill_count_unread(uint32 slot);

/* Are there files, also those of large transactions? */
extern bool herald_spill_has_files(void);

/* Bytes in files. */
extern uint64 herald_spill_bytes(void);

#endif							/* HERALD_SPILL_H */
