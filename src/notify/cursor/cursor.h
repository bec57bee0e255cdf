/*-------------------------------------------------------------------------
 *
 * cursor.h
 *	  A reader's way through the notifications of its channels, from a position on.
 *
 * A cursor reads what it lacks from this server's queue; or, if the queue does not have all of it, first from
 * the WAL up to a cut, and from there on from the queue.  It knows at each moment the position of its reader.  A
 * listening session has one cursor for all its channels, a call of herald.read() has one of its own.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_CURSOR_H
#define HERALD_CURSOR_H

#include "postgres.h"

#include "base/channel_hash.h"
#include "core/queue_layout.h"
#include "core/queue_reader.h"
#include "notify/cursor/wal_source.h"
#include "notify/position/gone.h"
#include "notify/position/token.h"

/* Zeroed: it has not begun. */
typedef struct HeraldCursor
{
	HeraldToken at;				/* its reader has received everything before
								 * this in the queue */
	HeraldWalSource *past;		/* what is to be read from the WAL before the
								 * queue; NULL: nothing */
	HeraldToken in_past;		/* the position of a reader that is in `past` */
	HeraldReceipt after_past;	/* the receipt at the end of `past` */
	HeraldPosition cut;			/* where the queue continues after `past` */
} HeraldCursor;

/* The arguments of herald_cursor_open(). */
typedef struct HeraldCursorRequest
{
	const HeraldToken *after;
	const HeraldChannelName *channels;
	int			channels_used;
	bool		outlives_transaction;	/* the cursor is used after the end of
										 * the transaction */
	bool		is_alone;		/* the cursor reads no other channels */
	bool		queue_has_lost; /* do not try the queue: it has lost what
								 * comes next */

	/*
	 * See to it that the queue is kept from this place on, of which the
	 * reader knows this number of bypasses; or say why it is not.
	 */
	HeraldGone	(*keep) (HeraldPosition place, uint32 bypasses, bool all_logged, void *arg);
	void	   *arg;

	/* Of herald_wal_source_read(). */
	HeraldListensTo wants;
	uint32		wanted_max;
} HeraldCursorRequest;

/*
 * See to it that a position which is taken now can be used on other servers: wait until a standby's relay knows
 * that the primary has pg_herald, and write a primary's first anchor.  In a transaction; may throw.
 */
extern void herald_cursor_prepare(void);

/* Begin now, when prepared: everything sent before the call counts as received.  In a transaction. */
extern void herald_cursor_begin(HeraldCursor *cursor);

/*
 * Begin after a token, or let a cursor that has begun read these channels from there on.  Gone: some of their notifications no
 * longer exist, and these channels are not read.  *in_past: their notifications begin before the queue.  In a transaction;
 * may throw.
 */
extern HeraldGone herald_cursor_open(HeraldCursor *cursor, const HeraldCursorRequest *request, bool *in_past);

/* The next notification from the WAL; false: there are no more, and the queue continues from `at`.  May throw. */
extern bool herald_cursor_next_past(HeraldCursor *cursor, HeraldPast *past);

/* Drop what is left to read from the WAL.  Never fails. */
extern void herald_cursor_close_past(HeraldCursor *cursor);

/* All notifications of this batch have been received; end 0: it is not logged.  Never fails. */
extern void herald_cursor_receive(HeraldCursor *cursor, HeraldCommitId commit);

/* The position of the reader, which has received every transaction that has ended.  Never fails. */
extern HeraldToken herald_cursor_position(HeraldCursor *cursor);

/* A position from which nothing resumes: there is none for a reader whose channels have got differently far.  Never fails. */
extern HeraldToken herald_cursor_no_position(void);

#endif							/* HERALD_CURSOR_H */
