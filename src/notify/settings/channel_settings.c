/*-------------------------------------------------------------------------
 *
 * channel_settings.c
 *	  Which channels of this database are logged.
 *
 * The settings are the options of a foreign server, like the connections of contrib/dblink.  So PostgreSQL itself dumps
 * and replicates the settings, checks privileges on them, and sends invalidations when they change; and no tool takes
 * the settings for a user's data.
 *
 * A reader of the WAL must know for each notification whether the notification is from before or after a change of the
 * settings: after the commit record of the change, each notification on a newly logged channel must be in the WAL.  But
 * no sender waits for a change, and no sender reads a catalog while it commits, since an administrator may have locked
 * the catalog.  So each session has a copy of the settings, and a statement that notifies brings the copy up to date.
 * Shared memory has a version number for each database's settings.  The version is odd while a change is being
 * committed, and otherwise even.  A commit uses the copy if the copy has the current version and this version is even.
 * Otherwise the commit logs all its notifications, which does no harm.
 *
 * [X5] A sender announces in its slot which version it uses, and then reads the current version again.  A session that
 * changes settings makes the version odd, and then looks at the slots.  So either the changing session sees the
 * announcement, or the sender sees the odd version.  The changing session waits for senders that use an older version,
 * and only then writes its commit record.  After its transaction, a sender takes its announcement back, and then reads
 * the current version: if the version has changed, the sender wakes the changing session.  When the change is visible,
 * and its invalidations are sent, the changing session makes the version even.  So a session that finds the same even
 * version before and after reading the settings has read the settings of that version.
 *
 * A session's copy has only committed settings, so the catalogs are read with a new snapshot, which does not show the
 * changes of the current transaction.  On a standby the version does not change, and only the server's invalidations
 * announce changes.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "base/activation.h"
#include "base/compat.h"
#include "base/database.h"
#include "base/notify_locks.h"
#include "base/waits.h"
#include "core/stop_point.h"
#include "notify/settings/channel_settings.h"

typedef struct Setting
{
	const char *name;			/* a channel, or a prefix without its '*' */
	const struct Setting *parent;	/* for a prefix: the longest other prefix
									 * with which this prefix begins; NULL:
									 * there is none */
	bool		logged;
} Setting;

/* A list of settings that is sorted by name. */
typedef struct SettingList
{
	Setting    *items;
	int			count;
	int			room;
} SettingList;

typedef struct Settings
{
	MemoryContext context;		/* for the items; NULL: there are no settings */
	SettingList exact;
	SettingList prefixes;
	bool		any_logged;
} Settings;

/* This session's copy of the settings. */
static struct
{
	Settings	settings;
	bool		is_read;
	uint32		version;		/* the version that was current just before
								 * the copy was read */
	bool		of_recovery;	/* the copy was read on a standby, where the
								 * version does not change */
	bool		is_announced;	/* an invalidation has come since the last
								 * read began, or the last read has failed */
	uint64		changes;		/* number of reads that changed `settings` */
}			copy;

/* The use of the settings by this transaction. */
static struct
{
	bool		is_used;
	bool		logs_all;		/* all notifications are logged, since the
								 * copy may be out of date */
	uint32		version;
	bool		is_changing;	/* this transaction has made the version odd */
}			use;

static uint32 current_version(void);
static bool is_up_to_date(uint32 version);
static bool try_read(void);
static void read_or_throw(void);
static void register_callbacks(void);
static void replace(Settings *settings);
static bool is_same(const SettingList *one, const SettingList *other);
static bool read_catalogs(Settings *found, bool of_others);
static Relation open_if_free(Oid catalog);
static Snapshot take_snapshot(Oid catalog, bool of_others);
static Oid	find_wrapper(Relation wrappers, Snapshot snapshot);
static void read_servers(Settings *found, Relation servers, Oid wrapper, Snapshot snapshot, bool of_others);
static void read_options(Settings *found, Datum options);
static void add(Settings *found, const char *name, bool logged);
static void sort(SettingList *list);
static int	compare(const void *one, const void *other);
static const Setting *find_last(const SettingList *list, const char *name);
static const Setting *find_prefix(const Settings *settings, const char *name);
static bool begins_with(const char *name, const char *prefix);
static bool is_logged_by(const Settings *settings, const char *name, bool is_prefix);
static List *add_changes(List *changes, const Settings *before, const Settings *after, bool is_after, bool is_prefix);
static LOCKTAG change_lock(void);
static bool is_in_use(uint64 announcement);
static void forget(Datum arg, int cacheid, uint32 hash);
herald_noreturn static void report_locked(void);


void
herald_channel_settings_read(void)
{
	(void) try_read();
}

void
herald_channel_settings_await(void)
{
	HERALD_MAY_WAIT();
	if (try_read())
		return;
	LockRelationOid(ForeignServerRelationId, AccessShareLock);
	LockRelationOid(ForeignDataWrapperRelationId, AccessShareLock);
	(void) try_read();
	UnlockRelationOid(ForeignDataWrapperRelationId, AccessShareLock);
	UnlockRelationOid(ForeignServerRelationId, AccessShareLock);
}

bool
herald_channel_settings_use(void)
{
	_Atomic uint64_t *composes = &herald_slots[herald_shared_my_slot()].composes;

	if (!use.is_used)
	{
		uint32		version = current_version();
		uint32		first = version;

		/*
		 * [X5] Announce a version, then read the current version again: so
		 * either herald_channel_settings_exclude_senders() sees the
		 * announcement, or this loop sees the odd version.
		 */
		do
		{
			use.version = version;
			atomic_store(composes, (uint64) MyDatabaseId << 32 | version);
			HERALD_HOLD_POINT("settings-announced");
			version = current_version();
		} while (version != use.version);
		if (version != first)
			herald_wait_tell(&herald_control->settings_released);
		use.is_used = true;
		use.logs_all = !copy.is_read || copy.of_recovery || copy.version != version || version % 2 != 0;
	}
	return use.logs_all || copy.settings.any_logged;
}

bool
herald_channel_settings_include(const char *channel)
{
	if (use.is_used ? use.logs_all : !try_read())
		return true;
	return is_logged_by(&copy.settings, channel, false);
}

bool
herald_channel_settings_any(void)
{
	return (use.is_used ? use.logs_all : !try_read()) || copy.settings.any_logged;
}

/*
 * [X5] Take the announcement back, then read the version: so either herald_channel_settings_exclude_senders() finds
 * no announcement of this session, or this session finds the version changed, and wakes the changing session.
 */
void
herald_channel_settings_end(void)
{
	if (use.is_used)
	{
		atomic_store(&herald_slots[herald_shared_my_slot()].composes, 0);
		if (current_version() != use.version)
			herald_wait_tell(&herald_control->settings_released);
	}
	if (use.is_changing)
	{
		LOCKTAG		lock = change_lock();
		HeraldDatabase *database = herald_database_find(MyDatabaseId);

		HERALD_HOLD_POINT("settings-end");
		atomic_store(&database->settings_place, atomic_load(&herald_queue->head));
		atomic_fetch_add(&database->settings_version, 1);
		(void) LockRelease(&lock, ExclusiveLock, true);
	}
	use.is_used = use.logs_all = use.is_changing = false;
}

bool
herald_channel_is_logged(const char *channel)
{
	read_or_throw();
	return is_logged_by(&copy.settings, channel, false);
}

void
herald_check_channel_here(const char *channel, const char *command)
{
	if (!RecoveryInProgress() || !herald_activation_is_on())
		return;
	if (!herald_channel_is_logged(channel))
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", command),
				 errdetail("A standby receives the notifications of logged channels only, and channel \"%s\" is not one.", channel),
				 errhint("On the primary, call herald.set_channel('%s', logged => true).", channel)));
}

uint64
herald_channel_settings_version(void)
{
	read_or_throw();
	return copy.changes;
}

bool
herald_setting_matches(const char *pattern, const char *channel)
{
	size_t		length = strlen(pattern);

	if (length > 0 && pattern[length - 1] == '*')
		return strncmp(pattern, channel, length - 1) == 0;
	return strcmp(pattern, channel) == 0;
}

List *
herald_channel_settings_changes(void)
{
	Settings	before = {0};
	Settings	after = {0};
	List	   *changes = NIL;

	HERALD_MAY_WAIT();

	/*
	 * Waiting is acceptable here, since this session has already waited for
	 * locks on these catalogs to change a foreign server or wrapper.
	 */
	LockRelationOid(ForeignServerRelationId, AccessShareLock);
	LockRelationOid(ForeignDataWrapperRelationId, AccessShareLock);
	(void) read_catalogs(&before, true);
	(void) read_catalogs(&after, false);
	for (int is_prefix = 0; is_prefix <= 1; is_prefix++)
		for (int is_after = 0; is_after <= 1; is_after++)
			changes = add_changes(changes, &before, &after, is_after, is_prefix);
	return changes;
}

/*
 * Add to the list the changes of channels or, if is_prefix is true, of prefixes.  is_after: look at the names that are
 * only in `after`; otherwise look at the names in `before`.  A change without an effect is left out: for example, a new
 * logged setting `job_1*`, if these channels were already logged because of `job_*`.
 */
static List *
add_changes(List *changes, const Settings *before, const Settings *after, bool is_after, bool is_prefix)
{
	const SettingList *list = is_prefix ? &before->prefixes : &before->exact;
	const SettingList *of_after = is_prefix ? &after->prefixes : &after->exact;

	for (int i = 0; i < (is_after ? of_after : list)->count; i++)
	{
		const char *name = (is_after ? of_after : list)->items[i].name;
		const Setting *other = is_after ? find_last(list, name) : NULL;
		bool		logged = is_logged_by(after, name, is_prefix);
		HeraldSettingChange *change;

		if ((other != NULL && strcmp(other->name, name) == 0) || logged == is_logged_by(before, name, is_prefix))
			continue;
		change = palloc(sizeof(HeraldSettingChange));
		change->logged = logged;
		snprintf(change->pattern, sizeof(change->pattern), "%s%s", name, is_prefix ? "*" : "");
		changes = lappend(changes, change);
	}
	return changes;
}

static LOCKTAG
change_lock(void)
{
	return herald_settings_lock((uint32) (herald_database_claim() - herald_control->databases));
}

void
herald_channel_settings_lock(void)
{
	LOCKTAG		lock = change_lock();

	HERALD_MAY_WAIT();
	(void) LockAcquire(&lock, ExclusiveLock, false, false);
	AcceptInvalidationMessages();
}

void
herald_channel_settings_unlock(void)
{
	LOCKTAG		lock = change_lock();

	(void) LockRelease(&lock, ExclusiveLock, false);
}

void
herald_channel_settings_exclude_senders(void)
{
	HeraldDatabase *database = herald_database_claim();
	LOCKTAG		lock = change_lock();

	/*
	 * The lock must last until the version is even again, but the server
	 * releases a transaction's locks earlier.  So the session takes the lock
	 * twice.  First as a transaction lock, for which it may have to wait; an
	 * error leaves no such lock behind.  Then as a session lock, without a
	 * wait, since the session has the lock already.
	 */
	HERALD_MAY_WAIT();
	herald_channel_settings_lock();
	(void) LockAcquire(&lock, ExclusiveLock, true, false);
	use.is_changing = true;
	atomic_fetch_add(&database->settings_version, 1);	/* [X5] before the slots
														 * are read */
	HERALD_STOP_POINT("settings-odd");
	for (uint32 slot = 0; slot < herald_control->slots; slot++)
	{
		_Atomic uint64_t *composes = &herald_slots[slot].composes;

		if (slot == herald_shared_my_slot())
			continue;
		ConditionVariablePrepareToSleep(&herald_control->settings_released);
		while (is_in_use(atomic_load(composes)))
			ConditionVariableSleep(&herald_control->settings_released, herald_wait(HERALD_WAIT_SETTINGS));
		ConditionVariableCancelSleep();
	}
}

/* Is this the announcement of a commit of this database that uses an older version of the settings? */
static bool
is_in_use(uint64 announcement)
{
	return (Oid) (announcement >> 32) == MyDatabaseId && (uint32) announcement != current_version();
}

/* Returns the version of this database's settings; 0 before the first change. */
static uint32
current_version(void)
{
	HeraldDatabase *database = herald_database_find(MyDatabaseId);

	return database == NULL ? 0 : atomic_load(&database->settings_version);
}

static bool
is_up_to_date(uint32 version)
{
	return copy.is_read && !copy.is_announced && copy.version == version &&
		(!copy.of_recovery || RecoveryInProgress());
}

/* Bring the copy up to date.  Returns false if a catalog is locked, or if the commit of a change overlaps the call. */
static bool
try_read(void)
{
	uint32		version = current_version();
	Settings	found = {0};

	register_callbacks();
	AcceptInvalidationMessages();
	if (is_up_to_date(version))
		return version % 2 == 0;

	copy.is_announced = false;
	copy.of_recovery = RecoveryInProgress();
	if (!read_catalogs(&found, true))
	{
		copy.is_announced = true;
		return false;
	}
	HERALD_STOP_POINT("settings-read");
	replace(&found);
	copy.is_read = true;
	copy.version = version;
	return version % 2 == 0 && version == current_version();
}

/* Bring the copy up to date, even while a change is being committed.  Throws if a catalog is locked. */
static void
read_or_throw(void)
{
	if (!try_read() && copy.is_announced)
		report_locked();
}

static void
report_locked(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not read the settings of channels"),
			 errdetail("Table pg_foreign_server or pg_foreign_data_wrapper is locked, for example by VACUUM FULL."),
			 errhint("Repeat the transaction.")));
}

static void
register_callbacks(void)
{
	static bool registered = false;

	if (registered)
		return;
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, forget, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, forget, (Datum) 0);
	registered = true;
}

static void
forget(Datum arg, int cacheid, uint32 hash)
{
	copy.is_announced = true;
}

/* Put these settings into the copy, which takes over their memory. */
static void
replace(Settings *settings)
{
	if (!is_same(&copy.settings.exact, &settings->exact) || !is_same(&copy.settings.prefixes, &settings->prefixes))
		copy.changes++;
	if (settings->context)
		MemoryContextSetParent(settings->context, TopMemoryContext);
	if (copy.settings.context)
		MemoryContextDelete(copy.settings.context);
	copy.settings = *settings;
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

/* Returns false if a catalog is locked.  of_others: leave out this transaction's own changes. */
static bool
read_catalogs(Settings *found, bool of_others)
{
	Relation	servers = open_if_free(ForeignServerRelationId);
	Relation	wrappers = servers == NULL ? NULL : open_if_free(ForeignDataWrapperRelationId);

	if (wrappers != NULL)
	{
		Snapshot	snapshot = take_snapshot(ForeignServerRelationId, of_others);
		Oid			wrapper = find_wrapper(wrappers, snapshot);

		if (OidIsValid(wrapper))
			read_servers(found, servers, wrapper, snapshot, of_others);
		UnregisterSnapshot(snapshot);
		table_close(wrappers, AccessShareLock);
	}
	if (servers != NULL)
		table_close(servers, AccessShareLock);
	return wrappers != NULL;
}

/* Returns NULL if the catalog is locked.  Scans use no index, since it might be locked: these catalogs are small. */
static Relation
open_if_free(Oid catalog)
{
	return ConditionalLockRelationOid(catalog, AccessShareLock) ? table_open(catalog, NoLock) : NULL;
}

static Snapshot
take_snapshot(Oid catalog, bool of_others)
{
	Snapshot	snapshot;

	InvalidateCatalogSnapshot();
	snapshot = RegisterSnapshot(GetNonHistoricCatalogSnapshot(catalog));
	if (of_others)
		snapshot->curcid = FirstCommandId;
	return snapshot;
}

static Oid
find_wrapper(Relation wrappers, Snapshot snapshot)
{
	SysScanDesc scan = systable_beginscan(wrappers, InvalidOid, false, snapshot, 0, NULL);
	Oid			found = InvalidOid;
	HeapTuple	row;

	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		Form_pg_foreign_data_wrapper wrapper = (Form_pg_foreign_data_wrapper) GETSTRUCT(row);

		if (strcmp(NameStr(wrapper->fdwname), HERALD_SETTINGS_SERVER) == 0)
			found = wrapper->oid;
	}
	systable_endscan(scan);
	return found;
}

static void
read_servers(Settings *found, Relation servers, Oid wrapper, Snapshot snapshot, bool of_others)
{
	SysScanDesc scan = systable_beginscan(servers, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	row;

	while (HeapTupleIsValid(row = systable_getnext(scan)))
	{
		Form_pg_foreign_server server = (Form_pg_foreign_server) GETSTRUCT(row);
		bool		is_null;
		Datum		options;

		if (server->srvfdw != wrapper)
			continue;
		options = heap_getattr(row, Anum_pg_foreign_server_srvoptions, RelationGetDescr(servers), &is_null);
		if (strcmp(NameStr(server->srvname), HERALD_SETTINGS_SERVER) != 0)
		{
			if (!of_others)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("server \"%s\" is not allowed for foreign-data wrapper \"%s\"",
								NameStr(server->srvname), HERALD_SETTINGS_SERVER),
						 errdetail("The wrapper has one server, which has its name, and the settings of channels."),
						 errhint("Use herald.set_channel().")));
		}
		else if (!is_null)
			read_options(found, options);
	}
	systable_endscan(scan);
}

static void
read_options(Settings *found, Datum options)
{
	ListCell   *option;

	found->context = AllocSetContextCreate(CurrentMemoryContext, "pg_herald channel settings",
										   ALLOCSET_SMALL_SIZES);
	foreach(option, untransformRelOptions(options))
	{
		DefElem    *element = lfirst(option);
		ListCell   *name;

		foreach(name, herald_channel_settings_parse(defGetString(element)))
			add(found, lfirst(name), strcmp(element->defname, HERALD_SETTINGS_LOGGED) == 0);
	}
	sort(&found->exact);
	sort(&found->prefixes);
}

List *
herald_channel_settings_parse(const char *option)
{
	ArrayType  *array = DatumGetArrayTypeP(OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, option), TEXTOID, -1));
	List	   *names = NIL;
	Datum	   *items;
	bool	   *nulls;
	int			count;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &items, &nulls, &count);
	for (int i = 0; i < count; i++)
		names = lappend(names, nulls[i] ? "" : TextDatumGetCString(items[i]));
	return names;
}

static void
add(Settings *found, const char *name, bool logged)
{
	size_t		length = strlen(name);
	bool		is_prefix = length > 0 && name[length - 1] == '*';
	SettingList *list = is_prefix ? &found->prefixes : &found->exact;
	Setting		setting = {.logged = logged};

	if (list->count == list->room)
	{
		list->room = Max(8, list->room * 2);
		if (list->items == NULL)
			list->items = MemoryContextAlloc(found->context, (Size) list->room * sizeof(Setting));
		else
			list->items = repalloc_huge(list->items, (Size) list->room * sizeof(Setting));
	}
	setting.name = MemoryContextStrdup(found->context, name);
	list->items[list->count++] = setting;
	if (is_prefix)
		((char *) list->items[list->count - 1].name)[length - 1] = '\0';
	found->any_logged |= logged;
}

/* Sort by name, which puts each prefix before all names that begin with the prefix; then set the parents. */
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

static bool
is_logged_by(const Settings *settings, const char *name, bool is_prefix)
{
	const Setting *setting = is_prefix ? NULL : find_last(&settings->exact, name);

	if (setting == NULL || strcmp(setting->name, name) != 0)
		setting = find_prefix(settings, name);
	return setting != NULL && setting->logged;
}

/*
 * Returns the setting with the longest prefix of this name; NULL: there is none.  If the list has a prefix of the name,
 * the last item that does not sort after the name is this prefix, or sorts between the two and so begins with the
 * prefix.  Therefore following `parent` from this item leads to the longest prefix of the name.
 */
static const Setting *
find_prefix(const Settings *settings, const char *name)
{
	const Setting *setting = find_last(&settings->prefixes, name);

	while (setting != NULL && !begins_with(name, setting->name))
		setting = setting->parent;
	return setting;
}

/* Returns the last item whose name does not sort after this name; NULL: there is none. */
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
