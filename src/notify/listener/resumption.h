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
 * Let delivery on a channel that this transaction will listen to begin after the token.  From now on the messages
 * after the token are kept for this session.  Gone: some of them cannot be read, and delivery begins at the commit.
 * May throw.
 */
extern HeraldGone herald_resumption_begin(const char *channel, const HeraldToken *token);

/* Called at the end of a transaction, after its LISTEN and UNLISTEN took effect or were dropped.  Never fails. */
extern void herald_resumption_end_transaction(void);

#endif							/* HERALD_RESUMPTION_H */
