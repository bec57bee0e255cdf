/*-------------------------------------------------------------------------
 *
 * quota.h
 *	  Limits the number of channels that the sessions of one role listen to.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_QUOTA_H
#define HERALD_QUOTA_H

#include "postgres.h"

/*
 * This session, which has joined, is about to enter `more` channels in the map.  Throws
 * ERRCODE_CONFIGURATION_LIMIT_EXCEEDED if its role would exceed the limit, with nothing
 * changed.  Otherwise they count until herald_session_set_channels() sets the final number.
 */
extern void herald_quota_claim(uint32 more);

#endif							/* HERALD_QUOTA_H */
