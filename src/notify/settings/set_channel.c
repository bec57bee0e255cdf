/*-------------------------------------------------------------------------
 *
 * set_channel.c
 *	  herald.set_channel(), and the validator of the settings.
 *
 * herald.set_channel() is a convenience: it executes CREATE, ALTER or DROP SERVER with the rights of its caller.
 * CREATE and ALTER SERVER call the validator; the access hook notes all three statements for log_setting.c.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "base/compat.h"
#include "base/own_channels.h"
#include "notify/settings/channel_settings.h"

PG_FUNCTION_INFO_V1(herald_set_channel);
PG_FUNCTION_INFO_V1(herald_channel_options);

/*
 * An option of the foreign server, with its list of patterns before and after the change.  If `before` and `after` are
 * the same pointer, the option does not change.
 */
typedef struct Option
{
	const char *name;
	bool		exists;			/* the foreign server has the option before
								 * the change, perhaps with an empty list */
	List	   *before;
	List	   *after;
} Option;

static void check_pattern(const char *pattern);
static void check_duplicates(List *names);
static int	compare(const ListCell *one, const ListCell *other);
static ForeignServer *find_server(void);
static void read_option(Option *option, List *options);
static List *with(List *names, const char *pattern, bool included);
static void change_server(bool exists, const Option options[2]);
static void append_change(StringInfo changes, const Option *option);
static char *as_array(List *names);
static bool is_in(List *names, const char *name);


/*
 * herald.set_channel(channel text, logged boolean) → void
 *
 * Sets whether notifications on the channel are written to the WAL.  If `channel` is a prefix followed by '*', the
 * setting is for all channels that begin with the prefix, and have neither a setting of their own nor a setting of a
 * longer prefix.  Null for `logged` removes the setting.  The function runs with the rights of its caller: the first
 * setting requires USAGE on the foreign-data wrapper pg_herald; a later setting requires ownership of the foreign
 * server pg_herald.
 */
Datum
herald_set_channel(PG_FUNCTION_ARGS)
{
	char	   *pattern;
	ForeignServer *server;
	Option		options[2] = {{HERALD_SETTINGS_LOGGED}, {HERALD_SETTINGS_UNLOGGED}};

	PreventCommandDuringRecovery("herald.set_channel()");
	PreventCommandIfReadOnly("herald.set_channel()");
	PreventCommandIfParallelMode("herald.set_channel()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("channel must not be null")));
	pattern = text_to_cstring(PG_GETARG_TEXT_PP(0));
	check_pattern(pattern);

	/*
	 * Without the lock, one of two transactions that change the foreign
	 * server at the same time would fail.  Any role can take the lock, but if
	 * the role may not change the foreign server, change_server() soon throws
	 * an error, which releases the lock.
	 */
	herald_channel_settings_lock();
	server = find_server();
	for (int i = 0; i < lengthof(options); i++)
	{
		if (server != NULL)
			read_option(&options[i], server->options);
		options[i].after = with(options[i].before, pattern,
								!PG_ARGISNULL(1) && PG_GETARG_BOOL(1) == (i == 0));
	}
	if (options[0].before == options[0].after && options[1].before == options[1].after)
		herald_channel_settings_unlock();
	else
		change_server(server != NULL, options);
	PG_RETURN_VOID();
}

/*
 * herald.channel_options(options text[], catalog oid) → void
 *
 * The validator of the foreign-data wrapper pg_herald.  Only the wrapper's foreign server can have options: `logged`
 * and `unlogged`.  The value of each option is an array of channels, and of prefixes followed by '*'.
 */
Datum
herald_channel_options(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	List	   *names = NIL;
	ListCell   *option;
	ListCell   *name;

	foreach(option, options)
	{
		DefElem    *element = lfirst(option);

		if (PG_GETARG_OID(1) != ForeignServerRelationId ||
			(strcmp(element->defname, HERALD_SETTINGS_LOGGED) != 0 &&
			 strcmp(element->defname, HERALD_SETTINGS_UNLOGGED) != 0))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", element->defname),
					 errhint("The server pg_herald has the options \"logged\" and \"unlogged\"; nothing else of the wrapper pg_herald has options.")));
		foreach(name, herald_channel_settings_parse(defGetString(element)))
		{
			check_pattern(lfirst(name));
			names = lappend(names, lfirst(name));
		}
	}
	check_duplicates(names);
	PG_RETURN_VOID();
}

/*
 * Throw if a pattern is in the list twice.  The list is sorted for this check, since it may have thousands of patterns,
 * and a statement that sets the patterns one by one calls this function for each pattern.
 */
static void
check_duplicates(List *names)
{
	const char *previous = "";
	ListCell   *name;

	list_sort(names, compare);
	foreach(name, names)
	{
		if (strcmp(lfirst(name), previous) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("channel \"%s\" is set more than once", previous)));
		previous = lfirst(name);
	}
}

static int
compare(const ListCell *one, const ListCell *other)
{
	return strcmp(lfirst(one), lfirst(other));
}

static void
check_pattern(const char *pattern)
{
	size_t		length = strlen(pattern);
	const char *asterisk = strchr(pattern, '*');

	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("channel name cannot be empty"),
				 errhint("Use '*' to set all channels that have no other setting.")));
	if (asterisk && asterisk[1] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid channel name or prefix \"%s\"", pattern),
				 errdetail("An asterisk is allowed only at the end, where it stands for all channels with that prefix."),
				 errhint("To set a channel with an asterisk in its name, set a prefix of that name.")));
	if (length - (asterisk ? 1 : 0) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("channel name too long"),
				 errdetail("A channel name or prefix has at most %d bytes.", NAMEDATALEN - 1)));
	if (herald_own_channel(pattern))
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("channel name \"%s\" is reserved", pattern),
				 errdetail("Only pg_herald itself sends on this channel, to one session at a time. It cannot be logged.")));
}

/* Returns the foreign server whose options are the settings; NULL: there is no such foreign server. */
static ForeignServer *
find_server(void)
{
	ForeignServer *server = GetForeignServerByName(HERALD_SETTINGS_SERVER, true);

	if (server != NULL && strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, HERALD_SETTINGS_SERVER) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("server \"%s\" belongs to another foreign-data wrapper", HERALD_SETTINGS_SERVER),
				 errhint("Rename that server.")));
	return server;
}

static void
read_option(Option *option, List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *element = lfirst(cell);

		if (strcmp(element->defname, option->name) != 0)
			continue;
		option->exists = true;
		option->before = herald_channel_settings_parse(defGetString(element));
	}
}

/*
 * Returns `names` with the pattern if `included`, or without it otherwise.  If nothing changes, returns the same
 * pointer.
 */
static List *
with(List *names, const char *pattern, bool included)
{
	List	   *result = NIL;
	ListCell   *name;

	if (included == is_in(names, pattern))
		return names;
	foreach(name, names)
	{
		if (strcmp(lfirst(name), pattern) != 0)
			result = lappend(result, lfirst(name));
	}
	return included ? lappend(result, pstrdup(pattern)) : result;
}

/* Create or change the foreign server, or drop it together with its last setting. */
static void
change_server(bool exists, const Option options[2])
{
	StringInfoData command;
	StringInfoData changes;

	initStringInfo(&command);
	initStringInfo(&changes);
	for (int i = 0; i < 2; i++)
		append_change(&changes, &options[i]);
	if (options[0].after == NIL && options[1].after == NIL)
		appendStringInfoString(&command, "DROP SERVER " HERALD_SETTINGS_SERVER);
	else
		appendStringInfo(&command, "%s SERVER " HERALD_SETTINGS_SERVER "%s OPTIONS (%s)", exists ? "ALTER" : "CREATE",
						 exists ? "" : " FOREIGN DATA WRAPPER " HERALD_SETTINGS_SERVER, changes.data);
	SPI_connect();
	if (SPI_execute(command.data, false, 0) < 0)
		elog(ERROR, "could not execute: %s", command.data);
	SPI_finish();
}

static void
append_change(StringInfo changes, const Option *option)
{
	if (option->before == option->after)
		return;
	appendStringInfo(changes, "%s%s%s", changes->len > 0 ? ", " : "",
					 option->after == NIL ? "DROP " : option->exists ? "SET " : "", option->name);
	if (option->after != NIL)
		appendStringInfo(changes, " %s", quote_literal_cstr(as_array(option->after)));
}

static char *
as_array(List *names)
{
	Datum	   *items = palloc(list_length(names) * sizeof(Datum));
	ArrayType  *array;

	for (int i = 0; i < list_length(names); i++)
		items[i] = CStringGetTextDatum(list_nth(names, i));
	array = construct_array(items, list_length(names), TEXTOID, -1, false, TYPALIGN_INT);
	return OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(array));
}

static bool
is_in(List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	}
	return false;
}
