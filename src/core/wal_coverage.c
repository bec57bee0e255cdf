/*-------------------------------------------------------------------------
 *
 * wal_coverage.c
 *	  Did the server that wrote the WAL at a reader's place run pg_herald?
 *
 * A server without pg_herald writes no message into the WAL, and its notifications on logged channels are lost for
 * readers.  Since the absence of messages alone proves nothing, each run with pg_herald writes a message before its
 * first commit.
 *
 * If a run commits without such a message, its first commit is a gap.  The next message is another gap, for listeners
 * that have begun between the two gaps.  A reader that begins in the middle of a run does not know the coverage until
 * it meets a message or the beginning of the next run.  Before that, there are no listeners and no positions, so there
 * is no gap.  If a reader has lost a part of the WAL, there may be listeners already, so the next message or the
 * beginning of the next run is a gap.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_coverage.h"

#define UNKNOWN			HERALD_WAL_UNKNOWN
#define LOST			HERALD_WAL_LOST
#define BEGUN			HERALD_WAL_BEGUN
#define COVERED			HERALD_WAL_COVERED
#define UNCOVERED		HERALD_WAL_UNCOVERED

/* The columns are the steps BEGINNING, COMMIT and MESSAGE. */
static const struct
{
	HeraldWalCoverage next;
	bool		is_gap;
}			steps[HERALD_WAL_COVERAGES][HERALD_WAL_STEPS] = {
	[UNKNOWN] = {{BEGUN, false}, {UNKNOWN, false}, {COVERED, false}},
	[LOST] = {{BEGUN, true}, {LOST, false}, {COVERED, true}},
	[BEGUN] = {{BEGUN, false}, {UNCOVERED, true}, {COVERED, false}},
	[COVERED] = {{BEGUN, false}, {COVERED, false}, {COVERED, false}},
	[UNCOVERED] = {{UNCOVERED, false}, {UNCOVERED, false}, {COVERED, true}},
};


HeraldWalCoverage
herald_wal_coverage_next(HeraldWalCoverage coverage, HeraldWalStep step, bool *is_gap)
{
	*is_gap = steps[coverage][step].is_gap;
	return steps[coverage][step].next;
}
