/*-------------------------------------------------------------------------
 *
 * spill.h
 *	  The queue's older part, in temporary files.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SPILL_H
#define HERALD_SPILL_H

#include "postgres.h"

#include "core/retention.h"

/* Shared memory, for memory.c. */
extern Size herald_spill_shared_size(void);
extern void herald_spill_shared_init(void);

/*
 * Make room in the ring: a whole segment that is free, since any batch fits into that.  Senders
 * get the oldest segment.  If listeners need it, it is written to a file first.  If that fails, or
 * herald.max_queue_size is reached, the listeners that need the oldest data miss notifications.
 *
 * True: a whole segment is free.  False: the oldest segment is not settled yet; or the queue is
 * damaged; or a caller that does not wait would have to wait for spill_lock or for files to be
 * deleted.  By a sender, in its transaction, before it publishes: may throw, and can block on
 * the disk.
 */
extern bool herald_spill_make_room(bool waits);

/*
 * Set where temporary files go: the server's own setting of temp_tablespaces.  By the
 * housekeeper, at its start and after a reload.
 */
extern void herald_spill_set_tablespaces(const char *names);

/*
 * Choose where the next files go, if there are none now and spill_lock is free, or the caller
 * waits for it.  By a sender, in its transaction; may throw.
 */
extern void herald_spill_choose_place(bool waits);

/* Find the files that are not needed, to have them deleted.  By the housekeeper.  Never throws. */
extern void herald_spill_doom_unneeded(void);

/*
 * Delete one of them, which can take long, or wait for a process that does.  By any process.
 * False: there was none to delete.  Never throws.
 */
extern bool herald_spill_delete_one(void);

/* If there are no files left, delete the folders as well.  By the housekeeper.  Never throws. */
extern void herald_spill_tidy(void);

/*
 * If this process has made room since the last call, and files are beyond herald.max_queue_size,
 * delete one.  By a sender, after its commit.  Never throws.
 */
extern void herald_spill_delete_in_return(void);

/*
 * Delete as many of them as is necessary for all files to be within herald.max_queue_size.  By a
 * process that has taken room for files.  Never throws.
 */
extern void herald_spill_delete_excess(void);

/*
 * herald.max_queue_size may have been lowered: give up what is beyond it.  By the
 * housekeeper, after a reload.  Never throws.
 */
extern void herald_spill_apply_limit(void);

/*
 * Make `bytes` more bytes fit into herald.max_queue_size, and give up the oldest data for that if
 * necessary.  Under spill_lock.  False: not enough can be given up.
 */
extern bool herald_spill_leave_room(uint64 bytes);

/*
 * The disk is full: delete a file that is not needed, or the oldest, unless other processes
 * have deleted some since *deleted, the result of herald_files_deleted() before the disk was
 * full.  False: there is nothing to delete.  Never throws.
 */
extern bool herald_spill_free_disk(uint32 *deleted);

/*
 * There is no place for one more large transaction's file: delete the oldest of these.
 * False: there is none that could be given up.  May throw.
 */
extern bool herald_spill_give_up_oldest_file(void);

/* From this position on everything but files of large transactions is still there, for the moment. */
extern HeraldPosition herald_spill_kept_from(void);

/*
 * This listener, in a transaction, wants to read a channel from an older position, which is where
 * a batch begins.  True: everything from there on will be delivered, or the listener is
 * notified that some is missing; *had_read is the position up to which it had read.  False: some of it
 * is gone already.  Never throws.
 */
extern bool herald_spill_hold(uint32 channel_hash, HeraldPosition position, HeraldPosition *had_read);

/*
 * Copy bytes of the queue that are no longer in memory, within one segment.
 * False: they are gone.  A HeraldReadSpilled; by a listener, in a transaction.
 */
extern bool herald_spill_read(HeraldPosition from, uint64 length, char *to);

/*
 * spill_lock.  Its holder may be writing to the disk.  Under it nothing may be thrown, nor reach
 * a client.  Its release deletes files if there are too many to delete.
 */
extern void herald_spill_lock(void);
extern void herald_spill_unlock(void);

/* A listener could not read a file: count and log that as an overrun. */
extern void herald_spill_report_unreadable(uint32 slot);

/* Are there files, also those of large transactions? */
extern bool herald_spill_has_files(void);

/* Bytes in files: all of them, those of segments, and how many there may be. */
extern uint64 herald_spill_bytes(void);
extern uint64 herald_spill_segment_bytes(void);
extern uint64 herald_spill_bytes_max(void);

#endif							/* HERALD_SPILL_H */
