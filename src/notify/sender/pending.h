/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  The current transaction's notifications, which wait for its commit.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_PENDING_H
#define HERALD_PENDING_H

#include "postgres.h"

#include "core/queue_layout.h"

/*
 * Add a notification.  False: it duplicates one of this transaction, and is not added.
 * Notifications that are not for our queue stay in memory, without a limit.  Throws when out
 * of memory, with nothing changed.
 */
extern bool herald_pending_add(const char *channel, size_t channel_length,
							   const char *payload, size_t payload_length, bool for_queue);

/*
 * The same for our queue, of a notification that duplicates none: without a comparison, which takes
 * long if the sender has chosen payloads with one hash.
 */
extern void herald_pending_add_unique(const char *channel, size_t channel_length,
									  const char *payload, size_t payload_length);

/* The current subtransaction was committed, or rolled back. */
extern void herald_pending_subcommit(void);
extern void herald_pending_subabort(void);

/* The transaction is over, either way.  Never fails. */
extern void herald_pending_reset(void);

/* The number of notifications; and all of them, as entries of the queue. */
extern uint32 herald_pending_count(void);
extern const char *herald_pending_entries(uint64 *length);

/*
 * Bytes of the longest payload that this transaction has added, including those that were
 * rolled back.
 */
extern uint64 herald_pending_longest_payload(void);

/* Pass each notification to a visitor, in the order in which they were added.  May throw, as the visitor may. */
typedef void (*HeraldEntryVisitor) (const HeraldEntry *entry);
extern void herald_pending_visit(HeraldEntryVisitor visit);

/*
 * Pass each notification that was not handed over before to a visitor, in the order in which
 * they were added.  If the current subtransaction is rolled back, those added by enclosing
 * levels count as not handed over.  May throw, as the visitor may.
 */
extern void herald_pending_hand_over(HeraldEntryVisitor visit);

/*
 * has_file: do the notifications not fit into a batch, or are some of them in a file already?
 * Then do not call herald_pending_entries().  complete_file: completes the file, and returns its
 * length; may throw.
 */
extern bool herald_pending_has_file(void);
extern uint64 herald_pending_complete_file(void);

/* If they are in a file, but fit into a batch after all, read them back to memory.  May throw. */
extern void herald_pending_return_to_memory(void);

#endif							/* HERALD_PENDING_H */
