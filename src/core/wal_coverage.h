/*-------------------------------------------------------------------------
 *
 * wal_coverage.h
 *	  Did the server that wrote the WAL at a reader's place run pg_herald?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_COVERAGE_H
#define HERALD_WAL_COVERAGE_H

#include <stdbool.h>

/* What a reader of the WAL knows about pg_herald in the run that has written the WAL at the reader's place. */
typedef enum HeraldWalCoverage
{
	HERALD_WAL_UNKNOWN,			/* the reader began in the middle of the run,
								 * and has met no message since then */
	HERALD_WAL_LOST,			/* a part of the WAL could not be read, and
								 * since then the reader has met neither a
								 * message nor a beginning of a run */
	HERALD_WAL_BEGUN,			/* the reader has met the beginning of the
								 * run, but neither a commit nor a message of
								 * the run */
	HERALD_WAL_COVERED,			/* the reader has met a message of the run */
	HERALD_WAL_UNCOVERED		/* this run or an earlier run has committed
								 * without pg_herald, and the reader has met
								 * no message since that commit */
} HeraldWalCoverage;

#define HERALD_WAL_COVERAGES	(HERALD_WAL_UNCOVERED + 1)

typedef enum HeraldWalStep
{
	HERALD_WAL_BEGINNING,		/* the record of a shutdown checkpoint or of
								 * an end of recovery, after which a run
								 * begins */
	HERALD_WAL_COMMIT,
	HERALD_WAL_MESSAGE			/* a message of pg_herald, for example an
								 * anchor */
} HeraldWalStep;

#define HERALD_WAL_STEPS		(HERALD_WAL_MESSAGE + 1)

/*
 * [X4] Returns the coverage after this step.  *is_gap is set to true if listeners may have missed notifications in
 * this step or before it.  Relies on herald_anchor_announce_run(), by which each run with pg_herald writes a message
 * between HERALD_WAL_BEGINNING and its first commit.
 */
extern HeraldWalCoverage herald_wal_coverage_next(HeraldWalCoverage coverage, HeraldWalStep step, bool *is_gap);

/*
 * Returns true if the run has pg_herald, or has not committed anything yet.  If false, no session on the standby can
 * begin to listen or get a position.
 */
static inline bool
herald_wal_coverage_is_evidence(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_BEGUN || coverage == HERALD_WAL_COVERED;
}

/*
 * Returns true if the standby may have listeners although the coverage is not evidence.  Such listeners may miss
 * notifications.
 */
static inline bool
herald_wal_coverage_is_doubt(HeraldWalCoverage coverage)
{
	return coverage == HERALD_WAL_LOST || coverage == HERALD_WAL_UNCOVERED;
}

#endif							/* HERALD_WAL_COVERAGE_H */
