/*-------------------------------------------------------------------------
 *
 * row.h
 *	  Builds a row of a view, column by column, with their names.
 *
 * A view's function in C names its columns in the order in which the extension script declares
 * them.  If the two differ in a name, a type or the number of columns, building the row throws
 * an error that shows the difference.
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

/* Maximum number of columns of a view. */
#define HERALD_ROW_COLUMNS_MAX	32

typedef struct HeraldRow
{
	TupleDesc	descriptor;		/* the columns as declared in SQL */
	int			columns;		/* number of columns that have been added */
	Datum		values[HERALD_ROW_COLUMNS_MAX];
	bool		nulls[HERALD_ROW_COLUMNS_MAX];
} HeraldRow;

/* An empty row of this function's result. */
extern HeraldRow herald_row_of(TupleDesc descriptor);

/* Add the next column. */
extern void herald_row_add(HeraldRow *row, const char *name, Oid type, Datum value);
extern void herald_row_add_or_null(HeraldRow *row, const char *name, Oid type, Datum value,
								   bool is_null);

/* After all columns have been added: add the row to the rows that the function returns. */
extern void herald_row_store(HeraldRow *row, ReturnSetInfo *result);

/* After all columns have been added: the row as the function's only result. */
extern Datum herald_row_datum(HeraldRow *row);

#endif							/* HERALD_ROW_H */
