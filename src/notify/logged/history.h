/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Logged notifications that a session reads from the WAL, because its client received the ones
 *	  before from another server, or from an earlier run of this one.
 *
 * A history is a temporary file of sections.  A section has what was committed after one token,
 * without what the token's client has received, up to a cut: this server's queue goes on there.
 * docs/internals/LOGGED.md says why nothing is missing or doubled between the two.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_HISTORY_H
#define HERALD_HISTORY_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/queue_layout.h"
#include "core/queue_reader.h"
#include "notify/logged/cut.h"
#include "notify/position/kept.h"
#include "notify/position/token.h"

typedef struct HeraldHistory HeraldHistory;

/* A notification, or the end of its transaction's. */
typedef struct HeraldPast
{
	uint32		section;
	const HeraldEntry *entry;	/* until the next call; NULL: the transaction's have ended */
	TimestampTz committed_at;
	HeraldToken after;			/* of a client that has received everything up to here */
} HeraldPast;

/*
 * An empty one, in this memory context.  outlives_transaction: its file lasts until it is closed;
 * else until the transaction ends, at the latest.  May throw.
 */
extern HeraldHistory *herald_history_open(MemoryContext parent, bool outlives_transaction);
extern void herald_history_close(HeraldHistory *history);

/*
 * Read the WAL after a token, up to a cut, into a new section, whose number is returned.  The caller
 * has the queue kept from the cut on before.  wants: reading may end earlier, after a transaction,
 * when it has met more than wanted_max notifications that are wanted; NULL: it does not.  HERALD_GONE_WAL or
 * HERALD_GONE_HISTORY: it could not be read.  May throw.
 */
extern HeraldGone herald_history_add(HeraldHistory *history, const HeraldToken *token, const HeraldCut *cut,
									 HeraldListensTo wants, uint32 wanted_max, uint32 *section);

/* Why the last history could not be read, in words. */
extern const char *herald_history_reason(void);

/* The section of this token, and its cut.  False: there is none. */
extern bool herald_history_find(const HeraldHistory *history, const HeraldToken *token, HeraldCut *cut,
								uint32 *section);

/* The section, if there is only one; else 0. */
extern uint32 herald_history_only_section(const HeraldHistory *history);

/*
 * Does the section have everything that was sent on the channel?  Not if its setting has changed
 * meanwhile.
 */
extern bool herald_history_covers(const HeraldHistory *history, uint32 section, const char *channel);

/* The next notification of all sections, from the first on.  False: there are no more.  May throw. */
extern bool herald_history_next(HeraldHistory *history, HeraldPast *past);

/* What a client has received that has received all sections; and the furthest cut. */
extern HeraldWalMark herald_history_mark(const HeraldHistory *history);
extern HeraldPosition herald_history_end(const HeraldHistory *history);

#endif							/* HERALD_HISTORY_H */
