/*-------------------------------------------------------------------------
 *
 * channel_settings.c
 *	  Which channels are logged: table herald.channel, as this backend keeps it.
 *
 * The table is read again after a relcache invalidation of it.  Its trigger sends one for each
 * change (notify/logged/set_channel.c); DROP EXTENSION sends one as well.  Commit records carry
 * them to standbys.
 *
 * A position that a client holds is good on another server only if everything that was sent on
 * its channel after a change of the setting was sent under the new setting.  So a commit with
 * notifications and a commit of a changed setting must not overlap.  The table's own lock
 * separates them: a sender takes it in RowShareLock before its commit record, the transaction
 * that changes settings in ExclusiveLock, and both keep it until they have ended.  The server
 * sends invalidations before it releases locks, so the next sender sees the new settings.
 * A sender's lock takes the server's fast path: its own slot in its own backend.
 *
 * A transaction with changed settings takes ExclusiveLock only before its commit record, so an
 * open transaction blocks no sender.  Until then it has ShareRowExclusiveLock, which senders do
 * not notice: two such transactions that both waited for the stronger lock would deadlock.
 *
 * The table is read with a snapshot of its own, as catalogs are: what counts is what has been
 * committed, not what the transaction's snapshot shows.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "base/activation.h"
#include "core/stop_point.h"
#include "notify/channels/channel_settings.h"

#define READS_MAX		10

typedef struct Setting
{
	const char *name;			/* of a channel, or a prefix without its '*' */
	const struct Setting *parent;	/* of a prefix: the longest other one that it begins with, or NULL */
	bool		logged;
} Setting;

/* Sorted by name. */
typedef struct SettingList
{
	Setting    *items;
	int			count;
	int			room;
} SettingList;

typedef struct Settings
{
	MemoryContext context;		/* has the rest; NULL: there are no settings */
	SettingList exact;
	SettingList prefixes;
	bool		any_logged;
} Settings;

static Settings settings;
static Oid	settings_table;		/* from which they were read; InvalidOid: there is none */
static bool is_known;			/* both are up to date */
static bool was_announced;		/* the table has changed since the last read began */
static uint64 version;			/* how often they were not what they had been when they were read */

static void refresh(void);
static Oid	find_table(void);
static void replace(Settings *new_settings);
static bool is_same(const SettingList *one, const SettingList *other);
static bool read_table(Settings *found);
static void add(Settings *found, const char *name, bool logged);
static void sort(SettingList *list);
static int	compare(const void *one, const void *other);
static const Setting *find_last(const SettingList *list, const char *name);
static bool begins_with(const char *name, const char *prefix);
static void forget(Datum arg, Oid relation);


bool
herald_settings_any_logged(void)
{
	refresh();
	return settings.any_logged;
}

bool
herald_settings_hold(void)
{
	Oid			held = InvalidOid;

	/* The extension may be dropped, and even created again, during the wait. */
	refresh();
	while (OidIsValid(settings_table) && settings_table != held)
	{
		held = settings_table;
		LockRelationOid(held, RowShareLock);
		refresh();
	}
	return settings.any_logged;
}

bool
herald_channel_is_logged(const char *channel)
{
	const Setting *setting;

	refresh();
	setting = find_last(&settings.exact, channel);
	if (setting != NULL && strcmp(setting->name, channel) == 0)
		return setting->logged;

	/*
	 * All names between a prefix of the channel and the channel begin with that prefix.  So the
	 * channel's prefixes are among the last prefix not behind the channel, and the prefixes of
	 * that one.
	 */
	setting = find_last(&settings.prefixes, channel);
	while (setting != NULL && !begins_with(channel, setting->name))
		setting = setting->parent;
	return setting != NULL && setting->logged;
}

void
herald_check_channel_here(const char *channel, const char *command)
{
	if (RecoveryInProgress() && herald_activation_is_on() && !herald_channel_is_logged(channel))
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", command),
				 errdetail("A standby receives the notifications of logged channels only, and channel \"%s\" is not one.", channel),
				 errhint("On the primary, call herald.set_channel('%s', logged => true).", channel)));
}

uint64
herald_settings_version(void)
{
	refresh();
	return version;
}

bool
herald_setting_matches(const char *pattern, const char *channel)
{
	size_t		length = strlen(pattern);

	if (length > 0 && pattern[length - 1] == '*')
		return strncmp(pattern, channel, length - 1) == 0;
	return strcmp(pattern, channel) == 0;
}

Oid
herald_settings_table(void)
{
	refresh();
	return settings_table;
}

void
herald_settings_claim(void)
{
	Oid			table = herald_settings_table();

	if (OidIsValid(table))
		LockRelationOid(table, ShareRowExclusiveLock);
}

void
herald_settings_exclude_senders(void)
{
	Oid			table = herald_settings_table();

	if (OidIsValid(table))
		LockRelationOid(table, ExclusiveLock);
}

static void
refresh(void)
{
	/* Read again if there was a change meanwhile, but not for ever. */
	for (int reads = 0; reads <= READS_MAX; reads++)
	{
		Settings	found = {0};

		AcceptInvalidationMessages();
		if (!herald_activation_is_on())
		{
			replace(&found);
			settings_table = InvalidOid;
			is_known = false;
			return;
		}
		if (is_known)
			return;

		settings_table = find_table();
		if (!OidIsValid(settings_table))
		{
			replace(&found);
			return;
		}
		is_known = read_table(&found) && !was_announced;
		replace(&found);
	}
}

/* The extension's own table, or InvalidOid. */
static Oid
find_table(void)
{
	static bool registered = false;
	Oid			schema = get_namespace_oid("herald", true);
	Oid			table = OidIsValid(schema) ? get_relname_relid("channel", schema) : InvalidOid;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget, (Datum) 0);
		registered = true;
	}
	if (OidIsValid(table) &&
		getExtensionOfObject(RelationRelationId, table) != get_extension_oid("pg_herald", true))
		return InvalidOid;
	return table;
}

/* In place of the present settings; their memory is this backend's from now on. */
static void
replace(Settings *new_settings)
{
	if (!is_same(&settings.exact, &new_settings->exact) || !is_same(&settings.prefixes, &new_settings->prefixes))
		version++;
	if (new_settings->context)
		MemoryContextSetParent(new_settings->context, TopMemoryContext);
	if (settings.context)
		MemoryContextDelete(settings.context);
	settings = *new_settings;
}

static bool
is_same(const SettingList *one, const SettingList *other)
{
	if (one->count != other->count)
		return false;
	for (int i = 0; i < one->count; i++)
		if (one->items[i].logged != other->items[i].logged || strcmp(one->items[i].name, other->items[i].name) != 0)
			return false;
	return true;
}

/* False: the table has been dropped. */
static bool
read_table(Settings *found)
{
	Relation	table = try_table_open(settings_table, AccessShareLock);
	SysScanDesc scan;
	HeapTuple	row;

	if (table == NULL)
		return false;

	found->context = AllocSetContextCreate(CurrentMemoryContext, "pg_herald channel settings",
										   ALLOCSET_SMALL_SIZES);
	was_announced = false;
	scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	HERALD_STOP_POINT("settings-read");
	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		bool		no_name;
		bool		no_value;
		Datum		name = heap_getattr(row, HERALD_SETTINGS_NAME, RelationGetDescr(table), &no_name);
		Datum		logged = heap_getattr(row, HERALD_SETTINGS_LOGGED, RelationGetDescr(table), &no_value);

		if (!no_name && !no_value)
			add(found, TextDatumGetCString(name), DatumGetBool(logged));
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);

	sort(&found->exact);
	sort(&found->prefixes);
	return true;
}

static void
add(Settings *found, const char *name, bool logged)
{
	size_t		length = strlen(name);
	bool		is_prefix = length > 0 && name[length - 1] == '*';
	SettingList *list = is_prefix ? &found->prefixes : &found->exact;

	if (list->count == list->room)
	{
		list->room = Max(8, list->room * 2);
		if (list->items == NULL)
			list->items = MemoryContextAlloc(found->context, list->room * sizeof(Setting));
		else
			list->items = repalloc_huge(list->items, list->room * sizeof(Setting));
	}
	list->items[list->count++] = (Setting) {
		.name = MemoryContextStrdup(found->context, name),
		.logged = logged
	};
	if (is_prefix)
		((char *) list->items[list->count - 1].name)[length - 1] = '\0';
	found->any_logged |= logged;
}

/* By name; and note the parents, each of which comes before all that begin with it. */
static void
sort(SettingList *list)
{
	if (list->count > 1)
		qsort(list->items, list->count, sizeof(Setting), compare);
	for (int i = 0; i < list->count; i++)
	{
		const Setting *parent = i > 0 ? &list->items[i - 1] : NULL;

		while (parent != NULL && !begins_with(list->items[i].name, parent->name))
			parent = parent->parent;
		list->items[i].parent = parent;
	}
}

static int
compare(const void *one, const void *other)
{
	return strcmp(((const Setting *) one)->name, ((const Setting *) other)->name);
}

/* The last item that does not sort behind this name, or NULL. */
static const Setting *
find_last(const SettingList *list, const char *name)
{
	int			low = 0;
	int			high = list->count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (strcmp(list->items[middle].name, name) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &list->items[low - 1] : NULL;
}

static bool
begins_with(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* For each invalidation of a relation; InvalidOid: all may have changed. */
static void
forget(Datum arg, Oid relation)
{
	if (relation == InvalidOid || relation == settings_table)
	{
		is_known = false;
		was_announced = true;
	}
}
