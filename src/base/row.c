/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Builds a row of a view, column by column, by their names.
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

#include "base/row.h"

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

HeraldRow
herald_row_only(FunctionCallInfo fcinfo)
{
	TupleDesc	descriptor;

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return herald_row_of(BlessTupleDesc(descriptor));
}

void
herald_row_add(HeraldRow *row, const char *name, Oid type, Datum value)
{
	herald_row_add_or_null(row, name, type, value, false);
}

void
herald_row_add_or_null(HeraldRow *row, const char *name, Oid type, Datum value, bool is_null)
{
	for (int column = 0; column < row->descriptor->natts; column++)
	{
		Form_pg_attribute attribute = TupleDescAttr(row->descriptor, column);

		if (namestrcmp(&attribute->attname, name) != 0)
			continue;
		if (attribute->atttypid != type)
			elog(ERROR, "column \"%s\" of a view has type %u in SQL, and type %u in C",
				 name, attribute->atttypid, type);
		row->is_given[column] = true;
		row->values[column] = value;
		row->nulls[column] = is_null;
		break;
	}
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
	for (int column = 0; column < row->descriptor->natts; column++)
		if (!row->is_given[column])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the loaded library of pg_herald has no column \"%s\"",
							NameStr(TupleDescAttr(row->descriptor, column)->attname)),
					 errdetail("The extension was updated, and the server runs an older library."),
					 errhint("Restart the server.")));
}
