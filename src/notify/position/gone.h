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
								 * earlier run of this server */
	HERALD_GONE_DATABASE,		/* the position is of another database
								 * (perhaps of a dropped one with the same
								 * oid) or of another cluster, or the text of
								 * the position was altered */
	HERALD_GONE_PAST_QUEUE,		/* some notifications went through the
								 * server's own queue */
	HERALD_GONE_BY_SIZE,		/* herald.retain_size did not keep the
								 * notifications, or the file of a large
								 * transaction was deleted */
	HERALD_GONE_FOR_ROOM,		/* the notifications were given up because the
								 * queue or the disk was full */
	HERALD_GONE_WAL,			/* the WAL after the position cannot be read,
								 * or is too long; `text` says why */
	HERALD_GONE_RELAY,			/* the relay of this server has not reached in
								 * time the position, or all commits that
								 * queries on this server already see */
	HERALD_GONE_HISTORY,		/* this server's WAL lacks notifications that
								 * the client has received, or does not show
								 * how much the client has received; `text`
								 * says why */
	HERALD_GONE_UNLOGGED,		/* the queue or the WAL may lack some of the
								 * notifications, for example because a
								 * setting has changed */
	HERALD_GONE_DAMAGED			/* the queue is damaged, and switched off */
} HeraldGoneKind;

typedef struct HeraldGone
{
	HeraldGoneKind kind;
	const char *text;			/* a clause for errdetail(); NULL if the kind
								 * needs no text */
} HeraldGone;

static inline HeraldGone
herald_gone(HeraldGoneKind kind)
{
	HeraldGone	gone = {.kind = kind};

	return gone;
}

/* Returns HERALD_GONE_HISTORY with this text. */
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

/* Throw error 55000, with the reason and a hint for the user. */
herald_noreturn extern void herald_gone_report(HeraldGone gone);

/* Report at level DEBUG1 why the channel's notifications can no longer be read. */
extern void herald_gone_tell(HeraldGone gone, const char *channel);

#endif							/* HERALD_GONE_H */
