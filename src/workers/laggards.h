/*-------------------------------------------------------------------------
 *
 * laggards.h
 *	  Logs listeners that are far behind.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LAGGARDS_H
#define HERALD_LAGGARDS_H

#include "postgres.h"

/* Log each listener that has begun to lag.  By the housekeeper, about every second. */
extern void herald_laggards_look(void);

#endif							/* HERALD_LAGGARDS_H */
