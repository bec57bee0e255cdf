/*-------------------------------------------------------------------------
 *
 * reorder.h
 *	  From records of the WAL to the logged notifications of each committed transaction.
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
	HERALD_WAL_EVENT_SETTING,	/* a channel's setting has changed; reported
								 * before the transaction's notifications */
	HERALD_WAL_EVENT_BATCH,		/* a transaction's notifications:
								 * herald_reorder_read() */
	HERALD_WAL_EVENT_GAP		/* something is missing */
} HeraldWalEventKind;

typedef struct HeraldWalEvent
{
	HeraldWalEventKind kind;
	Oid			database;		/* not of an anchor; InvalidOid: a gap in all
								 * databases */
	HeraldWalAnchor anchor;		/* of an anchor only */

	/*
	 * The commit, and its time.  Of a setting only the end is known; a gap's
	 * is the end of its record.
	 */
	HeraldCommitId commit;
	TimestampTz committed_at;

	/*
	 * A gap: a clause for a message, and whether the database was created
	 * here.
	 */
	const char *reason;
	bool		is_creation;

	/* A setting; the pattern is valid until the next event. */
	const char *pattern;
	bool		logged;
} HeraldWalEvent;

typedef enum HeraldWalNext
{
	HERALD_WAL_NEXT_NOTIFICATION,
	HERALD_WAL_NEXT_END,
	HERALD_WAL_NEXT_GONE		/* a part is missing from the WAL, or is not
								 * the one expected */
} HeraldWalNext;

typedef struct HeraldReorder HeraldReorder;

/* In the current memory context, which may be deleted instead of ending it.  coverage: of the WAL where reading begins. */
extern HeraldReorder *herald_reorder_begin(HeraldWalCoverage coverage);
extern void herald_reorder_end(HeraldReorder *reorder);

/* Take the next record.  Pass every record, without gaps. */
extern void herald_reorder_take(HeraldReorder *reorder, XLogReaderState *record);

/* The next event that this record has caused; false: there is none, or no more. */
extern bool herald_reorder_event(HeraldReorder *reorder, HeraldWalEvent *event);

/*
 * The notifications of the batch that was the last event: begin, then get one after the other.  The
 * strings are valid until the next call.  May be begun again.
 */
extern void herald_reorder_read_begin(HeraldReorder *reorder);
extern HeraldWalNext herald_reorder_read(HeraldReorder *reorder, HeraldWalNotification *notification);

/* Where the first message begins of all transactions that are still open; invalid: there are none. */
extern XLogRecPtr herald_reorder_oldest(HeraldReorder *reorder);

/* The coverage of the WAL up to the last record. */
extern HeraldWalCoverage herald_reorder_coverage(const HeraldReorder *reorder);

/* Messages with our prefix that pg_herald has not written; messages of later versions. */
extern uint64 herald_reorder_forged(const HeraldReorder *reorder);
extern uint64 herald_reorder_newer(const HeraldReorder *reorder);

#endif							/* HERALD_REORDER_H */
