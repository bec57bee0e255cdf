/*-------------------------------------------------------------------------
 *
 * last_logged.h
 *	  The last commit with logged notifications in this server's queue.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LAST_LOGGED_H
#define HERALD_LAST_LOGGED_H

#include "core/commit_id.h"

/* Note a commit with logged notifications.  Called before the batch of the commit is finished.  Never fails. */
extern void herald_last_logged_note(HeraldCommitId commit);

/*
 * Returns the noted commit whose record ends last in the WAL; end 0: no commit was noted since the start of this
 * server.
 */
extern HeraldCommitId herald_last_logged(void);

#endif							/* HERALD_LAST_LOGGED_H */
