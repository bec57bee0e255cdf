/*-------------------------------------------------------------------------
 *
 * assemble.h
 *	  From records of the WAL to the logged notifications of each committed transaction.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ASSEMBLE_H
#define HERALD_ASSEMBLE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "core/commit_id.h"
#include "core/wal_coverage.h"
#include "core/wal_mark.h"
#include "core/wal_message.h"
#include "notify/wal/wal_reader.h"

typedef enum HeraldWalEventKind
{
	HERALD_WAL_EVENT_ANCHOR,
	HERALD_WAL_EVENT_SETTING,	/* a channel's setting has changed; reported before the transaction's notifications */
	HERALD_WAL_EVENT_BATCH,		/* a transaction's notifications: herald_assembler_read() */
	HERALD_WAL_EVENT_GAP		/* something is missing */
} HeraldWalEventKind;

typedef struct HeraldWalEvent
{
	HeraldWalEventKind kind;
	Oid			database;		/* not of an anchor; InvalidOid: a gap in all databases */
	HeraldWalAnchor anchor;		/* of an anchor only */

	/* The commit, and its time.  Of a setting only the end is known; a gap's is the end of its record. */
	HeraldCommitId commit;
	TimestampTz committed_at;

	/* A gap: a clause for a message, and whether the database was created here. */
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
	HERALD_WAL_NEXT_GONE		/* a part is missing from the WAL, or is not the one expected */
} HeraldWalNext;

typedef struct HeraldAssembler HeraldAssembler;

/* In the current memory context, which may be deleted instead of ending it.  coverage: where it begins. */
extern HeraldAssembler *herald_assembler_begin(HeraldWalCoverage coverage);
extern void herald_assembler_end(HeraldAssembler *assembler);

/* Take the next record.  The records between two calls must not have been left out. */
extern void herald_assembler_take(HeraldAssembler *assembler, XLogReaderState *record);

/* The next event that this record has caused; false: there is none, or no more. */
extern bool herald_assembler_event(HeraldAssembler *assembler, HeraldWalEvent *event);

/*
 * The notifications of the batch that was the last event: begin, then get one after the other.  The
 * strings are valid until the next call.  May be begun again.
 */
extern void herald_assembler_read_begin(HeraldAssembler *assembler);
extern HeraldWalNext herald_assembler_read(HeraldAssembler *assembler, HeraldWalNotification *notification);

/* Where the first message begins of all transactions that are still open; invalid: there are none. */
extern XLogRecPtr herald_assembler_oldest(HeraldAssembler *assembler);

/* Of the WAL up to the last record. */
extern HeraldWalCoverage herald_assembler_coverage(const HeraldAssembler *assembler);

/* Messages with our prefix that pg_herald has not written; messages of later versions. */
extern uint64 herald_assembler_forged(const HeraldAssembler *assembler);
extern uint64 herald_assembler_newer(const HeraldAssembler *assembler);

#endif							/* HERALD_ASSEMBLE_H */
