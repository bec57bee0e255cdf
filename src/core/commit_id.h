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
	uint64_t	run;			/* of the server that committed it; drawn at random at its start */
	uint64_t	place;			/* of its batch in that server's queue */
	uint64_t	end;			/* of its commit record in the WAL; 0: there is none, or it is not written yet */
} HeraldCommitId;

#endif							/* HERALD_COMMIT_ID_H */
