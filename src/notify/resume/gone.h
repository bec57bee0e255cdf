/*-------------------------------------------------------------------------
 *
 * gone.h
 *	  Reports why the notifications after a position can no longer be read.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_GONE_H
#define HERALD_GONE_H

#include "postgres.h"

#include "base/compat.h"
#include "notify/position/kept.h"

/* Throw 55000, with a hint for the user. */
herald_noreturn extern void herald_gone_report(HeraldGone reason);

/* Tell a user who wants to know (DEBUG1), with the same hint, why a channel does not resume. */
extern void herald_gone_tell(HeraldGone reason, const char *channel);

#endif							/* HERALD_GONE_H */
