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
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cache/key.h"

PG_FUNCTION_INFO_V1(herald_cache_key);

static void append_escaped(StringInfo key, const char *part);


text *
herald_key_make(int count, const Datum *values, const bool *nulls, const Oid *types)
{
	StringInfoData key;

	if (count == 1 && nulls[0])
		return NULL;

	initStringInfo(&key);
	for (int i = 0; i < count; i++)
	{
		Oid			output;
		bool		is_varlena;
		char	   *part;

		if (i > 0)
			appendStringInfoChar(&key, ',');
		if (nulls[i])
		{
			appendStringInfoString(&key, "\\N");
			continue;
		}
		getTypeOutputInfo(types[i], &output, &is_varlena);
		part = OidOutputFunctionCall(output, values[i]);
		if (count == 1)
			appendStringInfoString(&key, part);
		else
			append_escaped(&key, part);
		pfree(part);
	}
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
append_escaped(StringInfo key, const char *part)
{
	for (; *part; part++)
	{
		if (*part == ',' || *part == '\\')
			appendStringInfoChar(key, '\\');
		appendStringInfoChar(key, *part);
	}
}
