/*-------------------------------------------------------------------------
 *
 * last_logged.c
 *	  The last commit with logged notifications in this server's queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/spin.h"

#include "base/shared.h"
#include "notify/position/last_logged.h"


void
herald_last_logged_note(HeraldCommitId commit)
{
	HeraldLastLogged *last = &herald_control->last_logged;

	SpinLockAcquire(&last->lock);
	if (commit.end > last->commit.end)
		last->commit = commit;
	SpinLockRelease(&last->lock);
}

HeraldCommitId
herald_last_logged(void)
{
	HeraldLastLogged *last = &herald_control->last_logged;
	HeraldCommitId commit;

	SpinLockAcquire(&last->lock);
	commit = last->commit;
	SpinLockRelease(&last->lock);
	return commit;
}
