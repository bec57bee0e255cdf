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

#include "notify/logged/history.h"
#include "notify/position/kept.h"
#include "notify/position/token.h"

/*
 * Let a channel that this transaction will listen to begin at the token's place, or after what its client has received
 * from another server.  From now on the messages after it are kept for this session.  Other than HERALD_GONE_NOTHING:
 * some of them no longer exist, and the channel begins at the commit.  May throw.
 */
extern HeraldGone herald_resumption_begin(const char *channel, const HeraldToken *token);

/*
 * The history that is to be delivered before the queue; NULL: there is none.  end_history: it has
 * been delivered.  end_transaction: after the channels have been changed, or not.  Never fail.
 */
extern HeraldHistory *herald_resumption_history(void);
extern void herald_resumption_end_history(void);
extern void herald_resumption_end_transaction(void);

#endif							/* HERALD_RESUMPTION_H */
