/*-------------------------------------------------------------------------
 *
 * gone.h
 *	  Why the notifications after a position can no longer be read.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_GONE_H
#define HERALD_GONE_H

#include "postgres.h"

#include "base/compat.h"

typedef enum HeraldGoneKind
{
	HERALD_GONE_NOTHING,		/* the notifications can be read */
	HERALD_GONE_RUN,			/* the position is of another server, or of an
								 * earlier run of this server, or has no
								 * usable place in a queue (HeraldToken.moved) */
	HERALD_GONE_DATABASE,		/* the position is of another database
								 * (perhaps of a dropped one with the same
								 * oid) or of another cluster, or the text of
								 * the position was altered */
	HERALD_GONE_PAST_QUEUE,		/* some notifications may have gone through
								 * the server's own queue */
	HERALD_GONE_BY_SIZE,		/* the queue no longer has the notifications,
								 * for example because of herald.retain_size,
								 * or because the file of a large transaction
								 * was deleted */
	HERALD_GONE_FOR_ROOM,		/* the notifications were given up because the
								 * queue or the disk was full */
	HERALD_GONE_WAL,			/* the WAL after the position cannot be read,
								 * or is too long; `text` says why */
	HERALD_GONE_RELAY,			/* the relay of this server took too long to
								 * reach the position, or to reach all commits
								 * that queries on this server already see */
	HERALD_GONE_HISTORY,		/* this server's WAL does not match the
								 * position, or has a gap after the position;
								 * or the position names no place in the WAL;
								 * or a transaction before the position is
								 * still committing; or this session already
								 * reads the WAL from another position; `text`
								 * says which */
	HERALD_GONE_UNLOGGED,		/* the queue or the WAL may lack some of the
								 * notifications, for example because a
								 * channel was not logged all the time */
	HERALD_GONE_DAMAGED			/* the queue is damaged, so it is switched off */
} HeraldGoneKind;

typedef struct HeraldGone
{
	HeraldGoneKind kind;
	const char *text;			/* the reason as a clause for errdetail();
								 * NULL for kinds whose message needs no
								 * clause */
} HeraldGone;

static inline HeraldGone
herald_gone(HeraldGoneKind kind)
{
	HeraldGone	gone = {.kind = kind};

	return gone;
}

/* Returns a reason of the kind HERALD_GONE_HISTORY with this text. */
static inline HeraldGone
herald_gone_history(const char *text)
{
	HeraldGone	gone = {.kind = HERALD_GONE_HISTORY,.text = text};

	return gone;
}

static inline bool
herald_is_gone(HeraldGone gone)
{
	return gone.kind != HERALD_GONE_NOTHING;
}

/* Throw error 55000: the notifications can no longer be read, for this reason.  Adds a hint for the user. */
herald_noreturn extern void herald_gone_report(HeraldGone gone);

/* Report at level DEBUG1 that the channel's notifications can no longer be read, and why. */
extern void herald_gone_tell(HeraldGone gone, const char *channel);

#endif							/* HERALD_GONE_H */
