/*-------------------------------------------------------------------------
 *
 * row.h
 *	  A row of a view, column by column, each by its name.
 *
 * A view's function in C names its columns in the order in which the extension
 * script declares them.  Where the two disagree in a name, a type, or in how many
 * there are, the row ends in an error that says where.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_ROW_H
#define HERALD_ROW_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/execnodes.h"

/* No view has more columns. */
#define HERALD_ROW_COLUMNS_MAX	32

typedef struct HeraldRow
{
	TupleDesc	descriptor;		/* what SQL says */
	int			columns;		/* that have been added */
	Datum		values[HERALD_ROW_COLUMNS_MAX];
	bool		nulls[HERALD_ROW_COLUMNS_MAX];
} HeraldRow;

/* An empty row of this function's result. */
extern HeraldRow herald_row_of(TupleDesc descriptor);

/* The next column. */
extern void herald_row_add(HeraldRow *row, const char *name, Oid type, Datum value);
extern void herald_row_add_or_null(HeraldRow *row, const char *name, Oid type, Datum value,
								   bool is_null);

/* All columns have been added: the row is one of those that the function returns... */
extern void herald_row_store(HeraldRow *row, ReturnSetInfo *result);

/* ... or its only one. */
extern Datum herald_row_datum(HeraldRow *row);

#endif							/* HERALD_ROW_H */
