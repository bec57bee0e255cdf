/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Builds a row of a view, column by column, with their names.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "views/row.h"

static void check_complete(HeraldRow *row);


HeraldRow
herald_row_of(TupleDesc descriptor)
{
	HeraldRow	row = {.descriptor = descriptor};

	if (descriptor->natts > HERALD_ROW_COLUMNS_MAX)
		elog(ERROR, "a view has %d columns in SQL, and room for %d in C",
			 descriptor->natts, HERALD_ROW_COLUMNS_MAX);
	return row;
}

void
herald_row_add(HeraldRow *row, const char *name, Oid type, Datum value)
{
	herald_row_add_or_null(row, name, type, value, false);
}

void
herald_row_add_or_null(HeraldRow *row, const char *name, Oid type, Datum value, bool is_null)
{
	int			column = row->columns++;
	Form_pg_attribute attribute;

	if (column >= row->descriptor->natts)
		elog(ERROR, "column \"%s\" of a view is in C only", name);
	attribute = TupleDescAttr(row->descriptor, column);
	if (namestrcmp(&attribute->attname, name) != 0 || attribute->atttypid != type)
		elog(ERROR, "column %d of a view is \"%s\" of type %u in SQL, and \"%s\" of type %u in C",
			 column + 1, NameStr(attribute->attname), attribute->atttypid, name, type);
	row->values[column] = value;
	row->nulls[column] = is_null;
}

void
herald_row_store(HeraldRow *row, ReturnSetInfo *result)
{
	check_complete(row);
	tuplestore_putvalues(result->setResult, row->descriptor, row->values, row->nulls);
}

Datum
herald_row_datum(HeraldRow *row)
{
	check_complete(row);
	return HeapTupleGetDatum(heap_form_tuple(row->descriptor, row->values, row->nulls));
}

static void
check_complete(HeraldRow *row)
{
	if (row->columns < row->descriptor->natts)
		elog(ERROR, "column \"%s\" of a view is in SQL only",
			 NameStr(TupleDescAttr(row->descriptor, row->columns)->attname));
}
