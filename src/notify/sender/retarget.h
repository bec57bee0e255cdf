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
 * Put the built-in functions back into a plan that is about to run, if the extension with
 * which it was made no longer exists: an SQL function keeps its plans while it runs.
 */
extern void herald_retarget_back(PlannedStmt *plan);

#endif							/* HERALD_RETARGET_H */
