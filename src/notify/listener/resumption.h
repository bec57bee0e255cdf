/*-------------------------------------------------------------------------
 *
 * resumption.h
 *	  Channels that begin where a client has left off.
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
 * Let a channel that this transaction will listen to begin after the token.  From now on the messages after it are kept
 * for this session.  Gone: some of them no longer exist, and the channel begins at the commit.  May throw.
 */
extern HeraldGone herald_resumption_begin(const char *channel, const HeraldToken *token);

/* After the channels of the transaction have been changed, or not.  Never fails. */
extern void herald_resumption_end_transaction(void);

#endif							/* HERALD_RESUMPTION_H */
