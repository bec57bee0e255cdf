/*-------------------------------------------------------------------------
 *
 * key.c
 *	  Makes cache keys from the arguments of a query or the columns of a row.
 *
 * A value must always give the same key: in the session that looks it up and in the one that
 * changes it, and also after objects have been renamed.  Whether the text of a value is
 * suitable depends on the output function of its type:
 *
 *	 IMMUTABLE: the text depends only on the value, and on settings that herald_key_make()
 *	 makes the same for all sessions.  The author of a type in an extension promises the same
 *	 with IMMUTABLE.
 *
 *	 Not IMMUTABLE, but known: dates and times depend on the same settings; the label of an
 *	 enum changes only by ALTER TYPE; arrays, ranges and rows are suitable if their elements
 *	 are.
 *
 *	 Values that name an object (regclass and the like) are numbers internally, and so is
 *	 money: the key is made from that number.
 *
 *	 All other types are refused.
 *
 * Conversely, equal values should give the same key.  Those of numeric, char(n) and floats do,
 * regardless of scale, trailing blanks, and the sign of zero.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/cash.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "cache/key.h"

PG_FUNCTION_INFO_V1(herald_cache_key);

static void append_parts(StringInfo key, int count, const Datum *values, const bool *nulls,
						 const Oid *types);
static char *text_of(Oid type, Datum value);
static char *text_of_equals(Oid output, Datum value);
static char *number_of(Oid type, Oid output, Datum value);
static void check_number(Oid type, Oid output);
static bool has_one_text(Oid type, Datum value);
static bool columns_have_one_text(Oid row, Datum value);
static void append_escaped(StringInfo key, const char *part);


text *
herald_key_make(int count, const Datum *values, const bool *nulls, const Oid *types)
{
	int			date_style = DateStyle;
	int			interval_style = IntervalStyle;
	pg_tz	   *zone = session_timezone;
	int			float_digits = extra_float_digits;
	int			bytea_style = bytea_output;
	StringInfoData key;

	if (count == 1 && nulls[0])
		return NULL;

	initStringInfo(&key);

	/*
	 * One session looks a value up, and another one changes it: their
	 * different settings for the output of values must not give different
	 * keys.
	 */
	DateStyle = USE_ISO_DATES;
	IntervalStyle = INTSTYLE_POSTGRES;
	session_timezone = pg_tzset("GMT");
	extra_float_digits = 1;
	bytea_output = BYTEA_OUTPUT_HEX;
	PG_TRY();
	{
		append_parts(&key, count, values, nulls, types);
	}
	PG_FINALLY();
	{
		DateStyle = date_style;
		IntervalStyle = interval_style;
		session_timezone = zone;
		extra_float_digits = float_digits;
		bytea_output = bytea_style;
	}
	PG_END_TRY();
	return cstring_to_text_with_len(key.data, key.len);
}

void
herald_key_check_type(Oid type)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(type, &output, &is_varlena);
	if (func_volatile(output) != PROVOLATILE_IMMUTABLE && !has_one_text(type, 0))
		check_number(type, output);
}

/*
 * herald.cache_key(VARIADIC arguments "any") → text
 *
 * Returns the key that all functions and triggers make from these values.  Modules in C need
 * it to share a cache with SQL.
 */
Datum
herald_cache_key(PG_FUNCTION_ARGS)
{
	Datum	   *values;
	bool	   *nulls;
	Oid		   *types;
	int			count = extract_variadic_args(fcinfo, 0, true, &values, &types, &nulls);
	text	   *key = count > 0 ? herald_key_make(count, values, nulls, types) : NULL;

	if (key == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(key);
}

static void
append_parts(StringInfo key, int count, const Datum *values, const bool *nulls, const Oid *types)
{
	for (int i = 0; i < count; i++)
	{
		char	   *part;

		if (i > 0)
			appendStringInfoChar(key, ',');
		if (nulls[i])
		{
			appendStringInfoString(key, "\\N");
			continue;
		}
		part = text_of(types[i], values[i]);
		if (count == 1)
			appendStringInfoString(key, part);
		else
			append_escaped(key, part);
		pfree(part);
	}
}

static char *
text_of(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;
	char	   *found;

	getTypeOutputInfo(type, &output, &is_varlena);
	found = text_of_equals(output, value);
	if (found)
		return found;
	if (func_volatile(output) != PROVOLATILE_IMMUTABLE && !has_one_text(type, value))
		return number_of(type, output, value);
	return OidOutputFunctionCall(output, value);
}

/*
 * The normalized text of a value whose type has equal values with different texts, because of
 * scale, blanks or sign; NULL: no such value.
 */
static char *
text_of_equals(Oid output, Datum value)
{
	char	   *found = NULL;

	if (output == F_NUMERIC_OUT)
		found = numeric_normalize(DatumGetNumeric(value));
	else if (output == F_BPCHAROUT)
	{
		found = TextDatumGetCString(value);
		found[bpchartruelen(found, (int) strlen(found))] = '\0';
	}
	else if ((output == F_FLOAT8OUT && DatumGetFloat8(value) == 0) ||
			 (output == F_FLOAT4OUT && DatumGetFloat4(value) == 0))
		found = pstrdup("0");
	return found;
}

/* The text of a value that is a number internally. */
static char *
number_of(Oid type, Oid output, Datum value)
{
	check_number(type, output);
	if (output == F_CASH_OUT)
		return psprintf(INT64_FORMAT, DatumGetCash(value));
	return psprintf("%u", DatumGetObjectId(value));
}

/* Throws for all other types. */
static void
check_number(Oid type, Oid output)
{
	if (output != F_CASH_OUT && !IsBinaryCoercible(type, OIDOID))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot make a cache key from a value of type %s", format_type_be(type)),
				 errdetail("The text of such a value may depend on settings or on names of objects, but one value must give the same key in all sessions."),
				 errhint("Use a value of another type, such as oid[] instead of regclass[]. "
						 "If the type is your own and its output depends on the value alone, declare its output function IMMUTABLE.")));
}

/*
 * Is the text of this type's values the same in all sessions?  value: for RECORD, since only
 * the value has its columns; 0: no value.
 */
static bool
has_one_text(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	if (!OidIsValid(type))
		return false;
	check_stack_depth();
	type = getBaseType(type);
	getTypeOutputInfo(type, &output, &is_varlena);
	switch (output)
	{
		case F_DATE_OUT:
		case F_TIMESTAMP_OUT:
		case F_TIMESTAMPTZ_OUT:
		case F_INTERVAL_OUT:
		case F_ENUM_OUT:
			return true;
		case F_ARRAY_OUT:
			return has_one_text(get_element_type(type), 0);
		case F_RANGE_OUT:
			return has_one_text(get_range_subtype(type), 0);
		case F_MULTIRANGE_OUT:
			return has_one_text(get_multirange_range(type), 0);
		case F_RECORD_OUT:
			return columns_have_one_text(type, value);
		default:
			return func_volatile(output) == PROVOLATILE_IMMUTABLE;
	}
}

static bool
columns_have_one_text(Oid row, Datum value)
{
	int32		typmod = -1;
	TupleDesc	columns;
	bool		result = true;

	if (row == RECORDOID)
	{
		HeapTupleHeader header;

		if (value == 0)
			return false;
		header = DatumGetHeapTupleHeader(value);
		row = HeapTupleHeaderGetTypeId(header);
		typmod = HeapTupleHeaderGetTypMod(header);
	}
	columns = lookup_rowtype_tupdesc(row, typmod);
	for (int i = 0; i < columns->natts && result; i++)
	{
		Form_pg_attribute column = TupleDescAttr(columns, i);

		result = column->attisdropped || has_one_text(column->atttypid, 0);
	}
	ReleaseTupleDesc(columns);
	return result;
}

static void
append_escaped(StringInfo key, const char *part)
{
	for (; *part; part++)
	{
		if (*part == ',' || *part == '\\')
			appendStringInfoChar(key, '\\');
		appendStringInfoChar(key, *part);
	}
}
