/*-------------------------------------------------------------------------
 *
 * resumption.h
 *	  Channels whose delivery begins where a client has left off.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_RESUMPTION_H
#define HERALD_RESUMPTION_H

#include "postgres.h"

#include "notify/position/gone.h"
#include "notify/position/token.h"

/*
 * Let delivery begin after the token on a channel to which this transaction will listen.  If some messages after the
 * token cannot be read, returns the reason, and delivery on the channel begins at the commit.  Otherwise returns
 * HERALD_GONE_NOTHING, and the messages after the token are kept for this session.  May throw.
 */
extern HeraldGone herald_resumption_begin(const char *channel, const HeraldToken *token);

/*
 * Close the past of the session's cursor if no channel uses the past.  Called at the end of a transaction, when its
 * LISTEN and UNLISTEN statements have taken effect or were dropped.  Never fails.
 */
extern void herald_resumption_end_transaction(void);

#endif							/* HERALD_RESUMPTION_H */
