/*-------------------------------------------------------------------------
 *
 * mark.h
 *	  What this session's client has received of the logged channels, in terms of the WAL.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_MARK_H
#define HERALD_MARK_H

#include "postgres.h"

#include "notify/position/token.h"

/*
 * The mark of a client that has received everything before *settled, which is set: the end of what
 * is settled now.  In a transaction.
 */
extern HeraldWalMark herald_mark_of_server(HeraldPosition *settled);

/*
 * Keep up a mark.  advance: everything before the position has been received.  receive: and all of
 * a batch with this commit entry, which may be empty.  witness: something of such a batch, no
 * matter from where.  Never fail.
 */
extern void herald_mark_advance(HeraldWalMark *mark, HeraldPosition position);
extern void herald_mark_receive(HeraldWalMark *mark, const HeraldCommitEntry *commit);
extern void herald_mark_witness(HeraldWalMark *mark, const HeraldCommitEntry *commit);

/* The client has received what both marks say. */
extern void herald_mark_join(HeraldWalMark *mark, const HeraldWalMark *other);

/* The session begins to listen: its client has received what was settled by now.  Never fails. */
extern void herald_mark_begin(void);

/*
 * The session goes back to a place that is older than what was settled when it began: its client has
 * received no more than this mark says.  Never fails.
 */
extern void herald_mark_go_back(const HeraldWalMark *received);

/* All of this batch is being sent to the client of this session. */
extern void herald_mark_send(const HeraldCommitEntry *commit);

/* Everything before the position has been sent to the client: this session's mark.  Never fails. */
extern HeraldWalMark herald_mark_at(HeraldPosition position);

/* The client has received a history whose end has this mark. */
extern void herald_mark_receive_history(const HeraldWalMark *mark);

#endif							/* HERALD_MARK_H */
