/*-------------------------------------------------------------------------
 *
 * wal_coverage.h
 *	  Did the server that has written the WAL up to here run pg_herald?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_COVERAGE_H
#define HERALD_WAL_COVERAGE_H

#include <stdbool.h>

/* What a reader of the WAL knows of the server's current run. */
typedef enum HeraldWalCoverage
{
	HERALD_WAL_UNKNOWN,			/* reading began in the middle of the run, and
								 * has met no message */
	HERALD_WAL_LOST,			/* a part of the WAL could not be read, and no
								 * message was met since */
	HERALD_WAL_BEGUN,			/* the run has begun, and nothing was
								 * committed yet */
	HERALD_WAL_COVERED,
	HERALD_WAL_UNCOVERED		/* this run or an earlier one has committed
								 * without pg_herald, and no message has come
								 * since */
} HeraldWalCoverage;

#define HERALD_WAL_COVERAGES	(HERALD_WAL_UNCOVERED + 1)

typedef enum HeraldWalStep
{
	HERALD_WAL_BEGINNING,		/* a shutdown checkpoint or an end of
								 * recovery, after which a run begins */
	HERALD_WAL_COMMIT,
	HERALD_WAL_MESSAGE			/* a message of pg_herald, for example an
								 * anchor */
} HeraldWalStep;

#define HERALD_WAL_STEPS		(HERALD_WAL_MESSAGE + 1)

/*
 * [X4] Return what is known after a step; set *is_gap to whether listeners may have missed
 * something up to here.  Pairs with herald_anchor_announce_run(), which writes a message between a
 * beginning and the first commit.
 */
extern HeraldWalCoverage herald_wal_coverage_next(HeraldWalCoverage coverage, HeraldWalStep step, bool *is_gap);

/* Is there evidence that the server runs pg_herald?  Otherwise there are no new listeners, and no positions. */
static inline bool
herald_wal_coverage_is_evidence(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_BEGUN || coverage == HERALD_WAL_COVERED;
}

/* May there be listeners although there is no evidence?  Then they may miss notifications. */
static inline bool
herald_wal_coverage_is_doubt(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_LOST || coverage == HERALD_WAL_UNCOVERED;
}

#endif							/* HERALD_WAL_COVERAGE_H */
