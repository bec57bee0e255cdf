/*-------------------------------------------------------------------------
 *
 * wal_mark.h
 *	  What a client has received of the logged channels, in terms of the WAL.
 *
 * All servers of a cluster have the same WAL, so a mark has the same meaning on each of them; a place
 * in one server's queue has not.  src/notify/cursor/README.md has the invariants.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_MARK_H
#define HERALD_WAL_MARK_H

#include <stdbool.h>
#include <stdint.h>

#include "commit_id.h"

/* A place in the WAL from which it can be read. */
typedef struct HeraldWalAnchor
{
	uint64_t	wal;			/* where the record begins; 0: there is none */
	uint64_t	run;			/* of the server that wrote it; 0: not known */
} HeraldWalAnchor;

/* Zeroed: nothing is known, and the client cannot resume by the WAL. */
typedef struct HeraldWalMark
{
	HeraldWalAnchor from;		/* an anchor: everything that the client lacks has its commit record and
								 * the last part of its message beyond it */
	uint64_t	done;			/* commits that end here or before have been received */
	HeraldCommitId furthest;	/* the witness: of the commits of which the client has received something, the
								 * one that ends last; end 0: none beyond `from` */
} HeraldWalMark;

/* The client has received something of this commit. */
extern void herald_wal_mark_witness(HeraldWalMark *mark, HeraldCommitId commit);

/*
 * The client has received all of this commit.  What another run has committed is in the queue of the
 * server with own_run in the order of the WAL: then it has received everything before it as well.
 */
extern void herald_wal_mark_receive(HeraldWalMark *mark, HeraldCommitId commit, uint64_t own_run);

/* [X1] The client has received everything before the place of this anchor. */
extern void herald_wal_mark_reach(HeraldWalMark *mark, HeraldWalAnchor anchor);

/*
 * The client has received everything that a standby's relay had sent when it was at this anchor and had
 * sent this commit last; end 0: none.
 */
extern void herald_wal_mark_relay(HeraldWalMark *mark, HeraldWalAnchor anchor, HeraldCommitId last);

/*
 * A client that reads the WAL in its order has received all of this commit.  anchor: the latest one before it at which no
 * transaction was open; wal 0: none.
 */
extern void herald_wal_mark_read(HeraldWalMark *mark, HeraldWalAnchor anchor, HeraldCommitId commit);

/* The client has received everything that either mark says. */
extern void herald_wal_mark_join(HeraldWalMark *mark, const HeraldWalMark *other);

/* Does the first mark claim less than the other in any respect? */
extern bool herald_wal_mark_is_before(const HeraldWalMark *mark, const HeraldWalMark *other);

#endif							/* HERALD_WAL_MARK_H */
