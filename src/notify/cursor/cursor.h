/*-------------------------------------------------------------------------
 *
 * cursor.h
 *	  Where a reader finds the notifications that it has not received yet: in the WAL, in the queue, or in both.
 *
 * If this server's queue has all notifications that the reader has not received yet, the reader needs only the queue.
 * Otherwise the reader first gets notifications from the WAL up to a cut (cut.h), and then reads the queue.  The
 * cursor always knows its reader's position.  A listening session has one cursor for all its channels; each call of
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

/* A zeroed cursor has no position yet. */
typedef struct HeraldCursor
{
	HeraldToken at;				/* the reader's position while `past` is NULL */
	HeraldWalSource *past;		/* the notifications from the WAL, which are
								 * read before the queue; NULL: no
								 * notifications from the WAL are left */
	HeraldToken in_past;		/* the reader's position while `past` is not
								 * NULL */
	HeraldReceipt after_past;	/* the reader's receipt after all of `past`
								 * has been read */
	HeraldPosition cut;			/* the place in the queue where reading
								 * continues after `past` */
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
	 * Returns the reason why the queue cannot be read from `place` on, or
	 * HERALD_GONE_NOTHING.  A listener's function also holds the queue from
	 * `place` on.  bypasses: number of the last bypass that is treated as
	 * before `place`.  all_logged: all channels of the request are logged.
	 */
	HeraldGone	(*keep) (HeraldPosition place, uint32 bypasses, bool all_logged, void *arg);
	void	   *arg;

	/* Arguments of herald_wal_source_read(). */
	HeraldListensTo wants;
	uint32		wanted_max;
} HeraldCursorRequest;

/*
 * Make sure that positions taken after this call can be used on other servers to resume logged channels.  On a standby,
 * wait until the relay has met evidence that the primary runs pg_herald.  On a primary with a logged channel, publish
 * an anchor if this run has published none, unless the relay is still active after a promotion.  Called in a
 * transaction; may throw.
 */
extern void herald_cursor_prepare(void);

/*
 * Begin the cursor at the present: everything in the settled part of the queue counts as received.  Called in a
 * transaction, after herald_cursor_prepare().
 */
extern void herald_cursor_begin(HeraldCursor *cursor);

/*
 * Let the cursor read the request's channels after the request's token; the cursor may already read other channels.
 * If some notifications on the request's channels cannot be read, returns the reason, and the cursor does not read
 * these channels.  Otherwise returns HERALD_GONE_NOTHING, and sets *in_past to true if the cursor begins to read these
 * channels in the WAL, or to false if it begins in the queue.  Called in a transaction; may throw.
 */
extern HeraldGone herald_cursor_open(HeraldCursor *cursor, const HeraldCursorRequest *request, bool *in_past);

/*
 * Get the next notification, or the next end of a transaction, from cursor->past.  Returns false if cursor->past is
 * NULL or has been read completely; the caller then reads the queue.  May throw.
 */
extern bool herald_cursor_next_past(HeraldCursor *cursor, HeraldPast *past);

/* Drop `past`, even if some of its notifications have not been read.  Never fails. */
extern void herald_cursor_close_past(HeraldCursor *cursor);

/*
 * Record in the cursor that the reader receives all notifications of this commit's batch before
 * herald_cursor_position() is called again.  commit.end 0: the batch has no logged notifications.  Never fails.
 */
extern void herald_cursor_receive(HeraldCursor *cursor, HeraldCommitId commit);

/*
 * Returns the reader's position: the end of the last transaction that the reader has received completely.  Never
 * fails.
 */
extern HeraldToken herald_cursor_position(HeraldCursor *cursor);

/*
 * Returns a position from which no client can resume, for a reader that has read its channels up to different places.
 * Never fails.
 */
extern HeraldToken herald_cursor_no_position(void);

#endif							/* HERALD_CURSOR_H */
