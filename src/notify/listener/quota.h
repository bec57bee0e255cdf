/*-------------------------------------------------------------------------
 *
 * quota.h
 *	  How many channels the sessions of one role may listen to.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUOTA_H
#define HERALD_QUOTA_H

#include "postgres.h"

/*
 * This session, which has joined, is about to enter so many more channels in the
 * map.  Throws ERRCODE_CONFIGURATION_LIMIT_EXCEEDED if that is too much for its
 * role, with nothing changed.  Otherwise they count, until
 * herald_session_set_channels() says how many it came to.
 */
extern void herald_quota_claim(uint32 more);

#endif							/* HERALD_QUOTA_H */
