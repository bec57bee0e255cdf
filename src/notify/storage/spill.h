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
 * Make room in the ring: let senders have the oldest segment, if need be after
 * writing it to a file, or, past herald.max_queue_size or when it cannot be
 * written, at the expense of the listeners that have not read it.  True: there
 * is room.  False: another process is at it, or the oldest segment is still
 * being written or dispatched.  By a sender, in its transaction, before it
 * publishes: may throw, and can block on the disk.
 */
extern bool herald_spill_make_room(void);

/*
 * The watchdog says where temporary files go: the server's own setting of
 * temp_tablespaces.  At its start and after a reload.  False: a file is being
 * written; try again later.
 */
extern bool herald_spill_set_tablespaces(const char *names);

/*
 * Choose where the next files go, if there are none now.  By a sender, in its
 * transaction; may throw.
 */
extern void herald_spill_choose_place(void);

/* Find the files that nobody needs, to have them deleted.  By anybody, now and then.  Never throws. */
extern void herald_spill_trim(void);

/*
 * Delete some of them, which takes some milliseconds.  By the watchdog.  False: there
 * are none, or another process is writing.  Never throws.
 */
extern bool herald_spill_delete_some(void);

/*
 * herald.max_queue_size may have been lowered: give up what is beyond it.  By the
 * watchdog, after a reload.  False: another process is writing; try again later.
 * Never throws.
 */
extern bool herald_spill_apply_limit(void);

/* Is there something that it will have to delete? */
extern bool herald_spill_needs_trim(void);

/*
 * Leave room for that many bytes besides segments within herald.max_queue_size,
 * at the expense of what is oldest.  Under spill_lock.  False: that is not enough.
 */
extern bool herald_spill_leave_room(uint64 bytes);

/*
 * The disk is full: delete some of what is not needed, or of what is oldest, unless others
 * have done so since *deletions, which herald_files_deletions() told before the disk was
 * found full.  False: there is nothing.  May throw.
 */
extern bool herald_spill_free_disk(uint32 *deletions);

/*
 * There is no place for one more large transaction's file: delete the oldest of these.
 * False: there is none that could be given up.  May throw.
 */
extern bool herald_spill_give_up_oldest_file(void);

/* From this position on everything but files of large transactions is still there, for the moment. */
extern HeraldPosition herald_spill_kept_from(void);

/* Everything that was kept before this position has been deleted by herald_spill_expire(). */
extern HeraldPosition herald_spill_expired_to(void);

/*
 * This listener, in a transaction, wants to read a channel from an older position, which is where
 * a batch begins; *had_read is where it had got to.  Never throws, nor waits.
 */
extern HeraldHoldResult herald_spill_hold(uint32 channel_hash, HeraldPosition position,
										  HeraldPosition *had_read);

/* The reference of the oldest large transaction's file; PG_UINT64_MAX: none, or another process is writing. */
extern HeraldPosition herald_spill_oldest_file(void);

/* Delete what nobody needs below this position, if nobody is writing.  Never throws. */
extern void herald_spill_expire(HeraldPosition position);

/*
 * Copy bytes of the queue that are no longer in memory, within one segment.
 * False: they are gone.  A HeraldReadSpilled; by a listener, in a transaction.
 */
extern bool herald_spill_read(HeraldPosition from, uint64 length, char *to);

/*
 * spill_lock.  Its holder may be writing to a disk that hangs: so to wait for it
 * can be cancelled, and throws then.  Under it nothing may be thrown, nor reach a
 * client.  Its release calls the watchdog to delete what was doomed under it
 * (files.h), and tells the processes that wait.
 */
extern bool herald_spill_try_lock(void);
extern void herald_spill_lock(void);
extern void herald_spill_unlock(void);

/* This listener could not read a file that was not given up: as an overrun. */
extern void herald_spill_count_unread(uint32 slot);

/* Are there files, also those of large transactions? */
extern bool herald_spill_has_files(void);

/* Bytes in files: all of them, those of segments, and how many there may be. */
extern uint64 herald_spill_bytes(void);
extern uint64 herald_spill_segment_bytes(void);
extern uint64 herald_spill_bytes_max(void);

#endif							/* HERALD_SPILL_H */
