/*-------------------------------------------------------------------------
 *
 * wal_coverage.c
 *	  Did the server that has written the WAL up to here run pg_herald?
 *
 * A server without pg_herald writes no message into the WAL, and its notifications on logged
 * channels are lost for readers.  Since the absence of messages alone proves nothing, each run of
 * a server with pg_herald writes a message before its first commit.
 *
 * There is a gap where a run commits without such a message.  There is another gap where messages come again,
 * for listeners that have begun in between.  A reader that began in the middle of a run knows nothing of that
 * run before it meets a message; until then there are no listeners, and no positions.  When a reader has lost
 * a part of the WAL, it has listeners already: there is a gap at the next beginning or message.
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

/* The columns are BEGINNING, COMMIT and MESSAGE. */
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
