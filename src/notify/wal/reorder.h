/*-------------------------------------------------------------------------
 *
 * reorder.h
 *	  Turns records of the WAL into the logged notifications of each committed transaction.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_REORDER_H
#define HERALD_REORDER_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/commit_id.h"
#include "core/wal_coverage.h"
#include "core/receipt.h"
#include "core/wal_message.h"
#include "notify/wal/wal_reader.h"

typedef enum HeraldWalEventKind
{
	HERALD_WAL_EVENT_ANCHOR,
	HERALD_WAL_EVENT_SETTING,	/* a committed transaction has changed a
								 * setting; this event comes before the
								 * transaction's batch */
	HERALD_WAL_EVENT_BATCH,		/* a transaction's notifications, which
								 * herald_reorder_read() returns */
	HERALD_WAL_EVENT_GAP		/* logged notifications may be missing, or
								 * cannot be read, or the database is a new
								 * one; see `reason` */
} HeraldWalEventKind;

typedef struct HeraldWalEvent
{
	HeraldWalEventKind kind;
	Oid			database;		/* not set for an anchor; InvalidOid for a gap
								 * in all databases */
	HeraldWalAnchor anchor;		/* set for HERALD_WAL_EVENT_ANCHOR only */

	/*
	 * For a batch, all fields of `commit` are set, and committed_at.  For a
	 * setting, only commit.end and committed_at are set.  For a gap, only
	 * commit.end is set, to the end of the record that shows the gap.
	 */
	HeraldCommitId commit;
	TimestampTz committed_at;
	HeraldSender sender;		/* set for HERALD_WAL_EVENT_BATCH only */

	/*
	 * Set for HERALD_WAL_EVENT_GAP only.  reason: why there is a gap, as a
	 * clause for a message.  is_creation: the record that shows the gap
	 * creates the database.
	 */
	const char *reason;
	bool		is_creation;

	/*
	 * Set for HERALD_WAL_EVENT_SETTING only.  pattern: a channel, or a prefix
	 * followed by '*'; valid until the next event.
	 */
	const char *pattern;
	bool		logged;
} HeraldWalEvent;

typedef enum HeraldWalNext
{
	HERALD_WAL_NEXT_NOTIFICATION,
	HERALD_WAL_NEXT_END,
	HERALD_WAL_NEXT_GONE		/* the message is not complete, or a part of
								 * it cannot be read again */
} HeraldWalNext;

typedef struct HeraldReorder HeraldReorder;

/*
 * Create a reorder in the current memory context.  Deleting that context ends the reorder, too.  coverage: the coverage
 * of the WAL at the place where the caller begins to read.
 */
extern HeraldReorder *herald_reorder_begin(HeraldWalCoverage coverage);
extern void herald_reorder_end(HeraldReorder *reorder);

/* Take the next record.  The caller must pass all records that the WAL reader returns, in order. */
extern void herald_reorder_take(HeraldReorder *reorder, XLogReaderState *record);

/* Get the next event of the record that was taken last.  Returns false if the record has no more events. */
extern bool herald_reorder_event(HeraldReorder *reorder, HeraldWalEvent *event);

/*
 * Read the notifications of the last event, which must be a batch: call herald_reorder_read_begin() once, and then
 * herald_reorder_read() for each notification.  A notification's strings are valid until the next call for this
 * reorder.  To read the batch once more, call herald_reorder_read_begin() again.
 */
extern void herald_reorder_read_begin(HeraldReorder *reorder);
extern HeraldWalNext herald_reorder_read(HeraldReorder *reorder, HeraldWalNotification *notification);

/*
 * Returns the place in the WAL where the earliest message of all open transactions begins; InvalidXLogRecPtr: no open
 * transaction has a message.
 */
extern XLogRecPtr herald_reorder_oldest(HeraldReorder *reorder);

/* Returns the coverage of the WAL after the record that was taken last. */
extern HeraldWalCoverage herald_reorder_coverage(const HeraldReorder *reorder);

/*
 * _forged returns how many forged messages were met so far.  _newer returns how many messages of a later version of
 * pg_herald were met so far.
 */
extern uint64 herald_reorder_forged(const HeraldReorder *reorder);
extern uint64 herald_reorder_newer(const HeraldReorder *reorder);

#endif							/* HERALD_REORDER_H */
