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
	HERALD_WAL_EVENT_SETTING,	/* a transaction has changed a channel's
								 * setting; comes before the transaction's
								 * notifications */
	HERALD_WAL_EVENT_BATCH,		/* a transaction's notifications, which
								 * herald_reorder_read() returns */
	HERALD_WAL_EVENT_GAP		/* notifications may be missing */
} HeraldWalEventKind;

typedef struct HeraldWalEvent
{
	HeraldWalEventKind kind;
	Oid			database;		/* unused for an anchor; InvalidOid for a gap
								 * in all databases */
	HeraldWalAnchor anchor;		/* set for an anchor only */

	/*
	 * The commit and its time.  For a setting or a gap, only the end is set
	 * in `commit`; for a gap, it is the end of the record that shows the gap.
	 */
	HeraldCommitId commit;
	TimestampTz committed_at;

	/*
	 * For a gap: the reason, as a clause for a message, and whether the
	 * record that shows the gap creates the database.
	 */
	const char *reason;
	bool		is_creation;

	/* For a setting.  The pattern is valid until the next event. */
	const char *pattern;
	bool		logged;
} HeraldWalEvent;

typedef enum HeraldWalNext
{
	HERALD_WAL_NEXT_NOTIFICATION,
	HERALD_WAL_NEXT_END,
	HERALD_WAL_NEXT_GONE		/* a part of the message is missing from the
								 * WAL, or is not the expected one */
} HeraldWalNext;

typedef struct HeraldReorder HeraldReorder;

/*
 * Create a reorder in the current memory context; deleting that context ends the reorder, too.  coverage: of the WAL
 * where reading begins.
 */
extern HeraldReorder *herald_reorder_begin(HeraldWalCoverage coverage);
extern void herald_reorder_end(HeraldReorder *reorder);

/* Take the next record.  From the first record on, the caller passes every record that its reader returns, in order. */
extern void herald_reorder_take(HeraldReorder *reorder, XLogReaderState *record);

/* Get the next event of the record that was taken last.  False: there are no more. */
extern bool herald_reorder_event(HeraldReorder *reorder, HeraldWalEvent *event);

/*
 * Read the notifications of the batch that was the last event: call _begin, and then _read for each notification.
 * A notification's strings are valid until the next call.  _begin may be called again, to read the batch once more.
 */
extern void herald_reorder_read_begin(HeraldReorder *reorder);
extern HeraldWalNext herald_reorder_read(HeraldReorder *reorder, HeraldWalNotification *notification);

/* Returns where the earliest message of the open transactions begins; InvalidXLogRecPtr: none of them has a message. */
extern XLogRecPtr herald_reorder_oldest(HeraldReorder *reorder);

/* Returns the coverage of the WAL up to the record that was taken last. */
extern HeraldWalCoverage herald_reorder_coverage(const HeraldReorder *reorder);

/* Return how many messages so far were forged, and how many a later version of pg_herald has written. */
extern uint64 herald_reorder_forged(const HeraldReorder *reorder);
extern uint64 herald_reorder_newer(const HeraldReorder *reorder);

#endif							/* HERALD_REORDER_H */
