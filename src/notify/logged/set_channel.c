/*-------------------------------------------------------------------------
 *
 * set_channel.c
 *	  Changing the settings of channels: herald.set_channel(), and the trigger of table
 *	  herald.channel.
 *
 * The trigger does what a change needs, so it may also come from a restored dump, from
 * replication, or from the owner's own statements.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "base/own_channels.h"
#include "notify/channels/channel_settings.h"
#include "notify/logged/log_setting.h"

PG_FUNCTION_INFO_V1(herald_set_channel);
PG_FUNCTION_INFO_V1(herald_channel_changed);

static void check_pattern(const char *pattern);
static void store(const char *pattern, bool logged);
static void remove_setting(const char *pattern);
static void execute(const char *sql, int count, Oid *types, Datum *values);
static void check_call(FunctionCallInfo fcinfo);
static char *name_of(Relation table, HeapTuple row);
static bool is_logged(Relation table, HeapTuple row);


/*
 * herald.set_channel(channel text, logged boolean) → void
 *
 * Sets whether notifications on the channel are written to the WAL; with '*' at the end, on all
 * channels with this prefix that have no setting of their own and none of a longer prefix.  Null
 * removes the setting.  Executed with the rights of the extension's owner.
 */
Datum
herald_set_channel(PG_FUNCTION_ARGS)
{
	char	   *pattern;

	PreventCommandDuringRecovery("herald.set_channel()");
	PreventCommandIfReadOnly("herald.set_channel()");
	PreventCommandIfParallelMode("herald.set_channel()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("channel must not be null")));
	pattern = text_to_cstring(PG_GETARG_TEXT_PP(0));
	check_pattern(pattern);

	herald_settings_claim();
	SPI_connect();
	if (PG_ARGISNULL(1))
		remove_setting(pattern);
	else
		store(pattern, PG_GETARG_BOOL(1));
	SPI_finish();
	PG_RETURN_VOID();
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

static void
store(const char *pattern, bool logged)
{
	Oid			types[] = {TEXTOID, BOOLOID};
	Datum		values[] = {CStringGetTextDatum(pattern), BoolGetDatum(logged)};

	execute("INSERT INTO herald.channel AS old (name, logged) VALUES ($1, $2)"
			" ON CONFLICT (name) DO UPDATE SET logged = EXCLUDED.logged"
			" WHERE old.logged IS DISTINCT FROM EXCLUDED.logged", 2, types, values);
}

static void
remove_setting(const char *pattern)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(pattern)};

	execute("DELETE FROM herald.channel WHERE name OPERATOR(pg_catalog.=) $1", 1, types, values);
}

static void
execute(const char *sql, int count, Oid *types, Datum *values)
{
	if (SPI_execute_with_args(sql, count, types, values, NULL, false, 0) < 0)
		elog(ERROR, "could not execute: %s", sql);
}

/*
 * herald.channel_changed() → trigger
 *
 * AFTER INSERT OR UPDATE OR DELETE ... FOR EACH ROW, on table herald.channel only: checks the
 * name, tells all sessions, also those on standbys, and readers of the WAL.
 */
Datum
herald_channel_changed(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Relation	table;
	HeapTuple	after = NULL;
	char	   *name;

	check_call(fcinfo);
	table = data->tg_relation;
	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot truncate table \"%s\"", RelationGetRelationName(table)),
				 errdetail("Readers of the WAL would not notice that settings are removed."),
				 errhint("Use DELETE, or herald.set_channel().")));

	/* As herald.set_channel() has done already. */
	herald_settings_claim();
	CacheInvalidateRelcache(table);
	if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
		after = data->tg_trigtuple;
	else if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		after = data->tg_newtuple;

	name = after ? name_of(table, after) : NULL;
	if (after)
	{
		check_pattern(name);
		herald_log_setting(name, is_logged(table, after));
	}
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		char	   *old = name_of(table, data->tg_trigtuple);

		if (name == NULL || strcmp(old, name) != 0)
			herald_log_setting(old, false);
	}
	return PointerGetDatum(NULL);
}

/* A trigger of another table would report changes that have not happened. */
static void
check_call(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", "channel_changed")));
	if (RelationGetRelid(data->tg_relation) != herald_settings_table())
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" is for table herald.channel only", "channel_changed")));
}

static char *
name_of(Relation table, HeapTuple row)
{
	return SPI_getvalue(row, RelationGetDescr(table), HERALD_SETTINGS_NAME);
}

static bool
is_logged(Relation table, HeapTuple row)
{
	bool		is_null;
	Datum		value = SPI_getbinval(row, RelationGetDescr(table), HERALD_SETTINGS_LOGGED, &is_null);

	return !is_null && DatumGetBool(value);
}
