/*-------------------------------------------------------------------------
 *
 * involvement.c
 *	  Does this backend's transaction concern pg_herald?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/involvement.h"

bool		herald_is_involved;
bool		herald_is_committing;
