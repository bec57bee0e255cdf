/*-------------------------------------------------------------------------
 *
 * commit_id.h
 *	  The commit of a transaction with logged notifications, as all servers of a cluster know it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_COMMIT_ID_H
#define HERALD_COMMIT_ID_H

#include <stdint.h>

typedef struct HeraldCommitId
{
	uint64_t	run;			/* the run of the server that committed the
								 * transaction; a random number */
	uint64_t	place;			/* the place of the transaction's batch in
								 * that server's queue */
	uint64_t	end;			/* the end of the commit record in the WAL; 0:
								 * there is no commit record, or it is not
								 * written yet */
} HeraldCommitId;

#endif							/* HERALD_COMMIT_ID_H */
