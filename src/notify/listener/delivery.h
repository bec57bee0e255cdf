/*-------------------------------------------------------------------------
 *
 * delivery.h
 *	  What the next delivery owes the client, besides the messages in the queue.
 *
 * Filled in at the end of each transaction (session.c, subscriptions.c, transaction.c), and
 * taken by the empty transaction that delivers (deliver.c).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_DELIVERY_H
#define HERALD_DELIVERY_H

#include "postgres.h"

#include "base/channel_hash.h"
#include "core/queue_layout.h"

typedef struct HeraldDelivery
{
	/* The end of this session's own transaction requested the delivery. */
	bool		is_requested;

	/* The client has run a statement: it may be waiting for ReadyForQuery. */
	bool		follows_statement;

	/*
	 * Before ReadyForQuery, deliver: everything up to own_batch, the end of a
	 * batch that this session has sent and listens to; and finished batches
	 * before answer_up_to, whose commits were answered before the client's
	 * last message arrived.  0: nothing.
	 */
	HeraldPosition own_batch;
	HeraldPosition answer_up_to;

	/* Send the session's position. */
	bool		sends_position;

	/*
	 * Send what the WAL had for channels that resume, before anything of the
	 * queue.
	 */
	bool		has_past;

	/*
	 * Must the client be notified, before anything else, that it has missed
	 * notifications on channels that it has resumed?  has_missed: yes.
	 * resumed_sets: still to be checked; yes, if more than `bypasses`
	 * transactions have bypassed our queue on channels of these sets.
	 */
	bool		has_missed;
	uint32		bypasses;
	HeraldChannelSets resumed_sets;
} HeraldDelivery;

/* Is anything owed for which a delivery must follow, even if no message is pending? */
static inline bool
herald_delivery_is_owed(const HeraldDelivery *owed)
{
	return owed->own_batch != 0 || owed->sends_position || owed->has_past || owed->has_missed || owed->resumed_sets != 0;
}

/* Channels of this set may have missed notifications: those counted after `bypasses`. */
static inline void
herald_delivery_look_for_missed(HeraldDelivery *owed, uint32 bypasses, HeraldChannelSets set)
{
	if (owed->resumed_sets == 0)
		owed->bypasses = bypasses;
	owed->resumed_sets |= set;
}

#endif							/* HERALD_DELIVERY_H */
