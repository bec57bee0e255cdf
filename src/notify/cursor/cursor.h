/*-------------------------------------------------------------------------
 *
 * cursor.h
 *	  A reader's way through the notifications of its channels, from a position on.
 *
 * A cursor reads the notifications that its reader lacks from this server's queue.  If the queue does not have
 * all of them, the cursor first reads from the WAL up to a cut, and then from the queue.  At each moment the
 * cursor knows its reader's position.  A listening session has one cursor for all its channels; each call of
 * herald.read() has a cursor of its own.
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

/* A zeroed cursor has not begun. */
typedef struct HeraldCursor
{
	HeraldToken at;				/* the reader's position when `past` has been
								 * read */
	HeraldWalSource *past;		/* the notifications to read from the WAL
								 * before the queue; NULL: none */
	HeraldToken in_past;		/* the reader's position while it reads `past` */
	HeraldReceipt after_past;	/* the reader's receipt at the end of `past` */
	HeraldPosition cut;			/* the place where the queue continues after
								 * `past` */
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
	bool		queue_has_lost; /* the queue has lost notifications after the
								 * token, so do not try the queue */

	/*
	 * Return why the queue cannot be read from this place on, if it cannot; a
	 * listener also holds the queue.  bypasses: the number of bypasses that
	 * the reader knows of at the place.
	 */
	HeraldGone	(*keep) (HeraldPosition place, uint32 bypasses, bool all_logged, void *arg);
	void	   *arg;

	/* Arguments of herald_wal_source_read(). */
	HeraldListensTo wants;
	uint32		wanted_max;
} HeraldCursorRequest;

/*
 * Make sure that a position of logged channels taken from now on can be used on other servers.  On a standby, wait
 * until the relay knows that the primary has pg_herald; on a primary, write the first anchor if any channel is logged.
 * In a transaction; may throw.
 */
extern void herald_cursor_prepare(void);

/*
 * Begin now: everything sent before the call counts as received.  Called after herald_cursor_prepare(), in a
 * transaction.
 */
extern void herald_cursor_begin(HeraldCursor *cursor);

/*
 * Begin after a token, or let a cursor that has begun read the request's channels from the token on.  Gone: some of
 * their notifications cannot be read, and the cursor does not read these channels.  Otherwise *in_past says whether
 * their notifications begin in the WAL.  In a transaction; may throw.
 */
extern HeraldGone herald_cursor_open(HeraldCursor *cursor, const HeraldCursorRequest *request, bool *in_past);

/*
 * The next notification or end of a transaction from the WAL.  False: no more; read the queue from `at` on.  May
 * throw.
 */
extern bool herald_cursor_next_past(HeraldCursor *cursor, HeraldPast *past);

/* Drop the notifications that are left to read from the WAL.  Never fails. */
extern void herald_cursor_close_past(HeraldCursor *cursor);

/* Before its next position the reader receives all of the batch with this commit; end 0: not logged.  Never fails. */
extern void herald_cursor_receive(HeraldCursor *cursor, HeraldCommitId commit);

/* The reader's position, at the end of the last transaction that it has received completely.  Never fails. */
extern HeraldToken herald_cursor_position(HeraldCursor *cursor);

/* A position that cannot be resumed, for a reader whose channels were read up to different places.  Never fails. */
extern HeraldToken herald_cursor_no_position(void);

#endif							/* HERALD_CURSOR_H */
