/*-------------------------------------------------------------------------
 *
 * wal_coverage.h
 *	  Was pg_herald there, on the server that has written the WAL up to here?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_COVERAGE_H
#define HERALD_WAL_COVERAGE_H

#include <stdbool.h>

/* What a reader of the WAL knows of the server's present run. */
typedef enum HeraldWalCoverage
{
	HERALD_WAL_UNKNOWN,			/* reading began in the middle of it, and has
								 * met no message */
	HERALD_WAL_LOST,			/* the same, after a part of the WAL that
								 * could not be read */
	HERALD_WAL_BEGUN,			/* it has begun, and nothing was committed yet */
	HERALD_WAL_COVERED,
	HERALD_WAL_UNCOVERED		/* it, or one before, has committed without
								 * pg_herald, of which nothing has come since */
} HeraldWalCoverage;

#define HERALD_WAL_COVERAGES	(HERALD_WAL_UNCOVERED + 1)

typedef enum HeraldWalStep
{
	HERALD_WAL_BEGINNING,		/* of a run: a checkpoint at shutdown, the end
								 * of a recovery */
	HERALD_WAL_COMMIT,
	HERALD_WAL_MESSAGE			/* of pg_herald, for example an anchor */
} HeraldWalStep;

#define HERALD_WAL_STEPS		(HERALD_WAL_MESSAGE + 1)

/*
 * [X4] What is known after a step; *is_gap: listeners may have missed something up to here.  Pairs
 * with herald_anchor_announce_run(): with pg_herald, a message comes between a beginning and the
 * first commit.
 */
extern HeraldWalCoverage herald_wal_coverage_next(HeraldWalCoverage coverage, HeraldWalStep step, bool *is_gap);

/* Is there evidence that pg_herald writes this run?  Else there are no new listeners, and no positions. */
static inline bool
herald_wal_coverage_is_evidence(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_BEGUN || coverage == HERALD_WAL_COVERED;
}

/* No evidence, although there may be listeners: they may be missing something. */
static inline bool
herald_wal_coverage_is_doubt(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_LOST || coverage == HERALD_WAL_UNCOVERED;
}

#endif							/* HERALD_WAL_COVERAGE_H */
