/*-------------------------------------------------------------------------
 *
 * gone.h
 *	  Why what came after a position cannot be read any more.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_GONE_H
#define HERALD_GONE_H

#include "postgres.h"

#include "notify/storage/kept.h"

/* Throw 55000, with what a user can do about it. */
herald_noreturn extern void herald_gone_report(HeraldGone reason);

#endif							/* HERALD_GONE_H */
