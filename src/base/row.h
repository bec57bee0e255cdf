/*-------------------------------------------------------------------------
 *
 * row.h
 *	  Builds a row of a view, column by column, by their names.
 *
 * A library serves the extension's objects of earlier versions, because a server loads a new
 * library at its next start, and each database updates its extension when an administrator
 * wants it.  So a view's function in C gives all columns that it knows, and the row takes
 * those that the function declares in SQL, in any order.
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
	bool		is_given[HERALD_ROW_COLUMNS_MAX];	/* C has added this column */
	Datum		values[HERALD_ROW_COLUMNS_MAX];
	bool		nulls[HERALD_ROW_COLUMNS_MAX];
} HeraldRow;

/* An empty row of this function's result. */
extern HeraldRow herald_row_of(TupleDesc descriptor);

/* The same, where the result is a single row. */
extern HeraldRow herald_row_only(FunctionCallInfo fcinfo);

/* Add a column.  A column that is not declared in SQL is left out. */
extern void herald_row_add(HeraldRow *row, const char *name, Oid type, Datum value);
extern void herald_row_add_or_null(HeraldRow *row, const char *name, Oid type, Datum value,
								   bool is_null);

/*
 * After all columns have been added: add the row to the rows that the function returns.  Throws
 * an error if SQL declares a column that was not added.
 */
extern void herald_row_store(HeraldRow *row, ReturnSetInfo *result);

/* The same for a function that returns a single row: this row. */
extern Datum herald_row_datum(HeraldRow *row);

#endif							/* HERALD_ROW_H */
