/*-------------------------------------------------------------------------
 *
 * retarget.h
 *	  Puts pg_herald's functions into finished plans.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RETARGET_H
#define HERALD_RETARGET_H

#include "postgres.h"

#include "nodes/plannodes.h"

/*
 * Replace calls of pg_notify() and pg_notification_queue_usage() in a plan
 * that the planner has just made.  By the planner hook.
 */
extern void herald_retarget_plan(PlannedStmt *plan);

/*
 * Correct a kept plan that is about to run, if the extension has been dropped or created since it
 * was made: an SQL function keeps its plans while it runs.
 */
extern void herald_retarget_kept(PlannedStmt *plan);

#endif							/* HERALD_RETARGET_H */
