/*-------------------------------------------------------------------------
 *
 * read_row.h
 *	  The rows of herald.read().
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_READ_ROW_H
#define HERALD_READ_ROW_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/execnodes.h"

#include "core/queue_layout.h"

typedef enum HeraldReadColumn
{
	HERALD_READ_POSITION,
	HERALD_READ_CHANNEL,
	HERALD_READ_PAYLOAD,
	HERALD_READ_PID,
	HERALD_READ_COMMITTED_AT,
	HERALD_READ_XID,
	HERALD_READ_SENDER,
	HERALD_READ_COLUMNS
} HeraldReadColumn;

/* A row whose position is not known yet. */
typedef struct HeraldReadRow
{
	Datum		values[HERALD_READ_COLUMNS];
	bool		nulls[HERALD_READ_COLUMNS];
	MemoryContext memory;		/* memory context of the values */
	Oid			role;			/* the role that was looked up last */
	bool		role_exists;
	NameData	role_name;
} HeraldReadRow;

/*
 * Initialize a row whose columns are null, except the position, which is set later.  The row's memory context is
 * created in the current memory context.
 */
extern void herald_read_row_begin(HeraldReadRow *row);

/*
 * Set all columns of the row except the position.  sender, committed_at: the sender and the commit time of the
 * notification's transaction.
 */
extern void herald_read_row_set(HeraldReadRow *row, const HeraldEntry *entry, HeraldSender sender,
								TimestampTz committed_at);

/* Set all columns of the row except the position to null. */
extern void herald_read_row_clear(HeraldReadRow *row);

/* Set the position of the row, add the row to the result, and free the row's values. */
extern void herald_read_row_store(HeraldReadRow *row, const char *position, ReturnSetInfo *result);

#endif							/* HERALD_READ_ROW_H */
