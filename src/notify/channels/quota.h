/*-------------------------------------------------------------------------
 *
 * quota.h
 *	  Limits the channel memory that the sessions of one role use.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUOTA_H
#define HERALD_QUOTA_H

#include "postgres.h"

/* This session, which has joined, is about to enter `count` channels in the map, at the most. */
extern void herald_quota_begin(uint32 count);

/*
 * Before each of them.  Throws ERRCODE_CONFIGURATION_LIMIT_EXCEEDED if its role could exceed the
 * limit.
 */
extern void herald_quota_take_one(void);

/* After the last one, or an error.  Never fails. */
extern void herald_quota_end(void);

#endif							/* HERALD_QUOTA_H */
