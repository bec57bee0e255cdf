/*-------------------------------------------------------------------------
 *
 * key.c
 *	  Keys made of several values.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

#include "cache/key.h"

PG_FUNCTION_INFO_V1(herald_cache_key);

static void append_parts(StringInfo key, int count, const Datum *values, const bool *nulls,
						 const Oid *types);
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
	 * A key is made by whoever looks something up, and by whoever changes it: what
	 * their settings say about the looks of values must not make two keys of one.
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

/*
 * herald.cache_key(VARIADIC parts "any") → text
 *
 * The key that herald.invalidate_cache() makes of columns with these values.
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
		Oid			output;
		bool		is_varlena;
		char	   *part;

		if (i > 0)
			appendStringInfoChar(key, ',');
		if (nulls[i])
		{
			appendStringInfoString(key, "\\N");
			continue;
		}
		getTypeOutputInfo(types[i], &output, &is_varlena);
		part = OidOutputFunctionCall(output, values[i]);
		if (count == 1)
			appendStringInfoString(key, part);
		else
			append_escaped(key, part);
		pfree(part);
	}
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
