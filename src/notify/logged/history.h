/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Logged notifications that a session reads from the WAL, because its client received the ones
 *	  before from another server, or from an earlier run of this one.
 *
 * A history has what was committed after one token, without what the token's client has received, up to a
 * cut: this server's queue goes on there.  It is kept in a temporary file.  docs/internals/LOGGED.md says why nothing is
 * missing or doubled between the two.
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

/* One notification; or, with entry == NULL, the end of a transaction. */
typedef struct HeraldPast
{
	const HeraldEntry *entry;	/* until the next call */
	TimestampTz committed_at;
	HeraldToken after;			/* at the end of a transaction: of a client that has received everything up to here */
} HeraldPast;

/*
 * An empty one, in this memory context.  outlives_transaction: its file lasts until it is closed;
 * else until the transaction ends, at the latest.  May throw.
 */
extern HeraldHistory *herald_history_open(MemoryContext parent, bool outlives_transaction);
extern void herald_history_close(HeraldHistory *history);

/*
 * Read the WAL after a token, up to a cut.  The caller has the queue kept from the cut on before.  wants: reading may end
 * earlier, after a transaction, when it has met more than wanted_max notifications that are wanted; NULL: it does not.
 * HERALD_GONE_WAL or HERALD_GONE_HISTORY: it could not be read, and the history is still empty.  May throw.
 */
extern HeraldGone herald_history_read(HeraldHistory *history, const HeraldToken *token, const HeraldCut *cut,
									  HeraldListensTo wants, uint32 wanted_max);

/*
 * The cut, if the history was read after this token.  HERALD_GONE_HISTORY: it was read after another one.  *is_read
 * false: it was not read.
 */
extern HeraldGone herald_history_find(const HeraldHistory *history, const HeraldToken *token, HeraldCut *cut, bool *is_read);

/* Why the last history could not be read, in words. */
extern const char *herald_history_reason(void);

/* Does it have everything that was sent on the channel?  Not if its setting has changed meanwhile. */
extern bool herald_history_covers(const HeraldHistory *history, const char *channel);

/* The next notification, from the first on.  False: there are no more.  May throw. */
extern bool herald_history_next(HeraldHistory *history, HeraldPast *past);

/* The mark of a client that has received the whole history, and the place where the queue goes on. */
extern HeraldWalMark herald_history_mark(const HeraldHistory *history);
extern HeraldPosition herald_history_end(const HeraldHistory *history);

#endif							/* HERALD_HISTORY_H */
