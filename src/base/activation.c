/*-------------------------------------------------------------------------
 *
 * activation.c
 *	  Is pg_herald switched on in this database?
 *
 * It is if the extension's function is there that replaces pg_notify() in plans.  Changes of
 * pg_proc are announced to every backend: so the result is kept until such an invalidation
 * arrives.
 *
 * A function counts only if it is ours, in C; and it is in pg_catalog, where no ordinary role can
 * replace it, even one that owns it.  Otherwise every user that calls pg_notify() would run
 * that role's function.  Administrators revoke privileges on all schemas but the server's own, and
 * a call of pg_notify() must not need one there.
 *
 * An administrator may have locked pg_proc.  Then the answer is yes, for now: where pg_herald is not
 * switched on, a notification through its queue reaches the same listeners.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#include "base/activation.h"
#include "core/stop_point.h"

#define LIBRARY			"$libdir/pg_herald"
#define LOOK_UPS_MAX	10

typedef struct Activation
{
	bool		is_on;
	Oid			notify_function;
	Oid			usage_function;
} Activation;

static Activation activation;
static bool is_known;			/* activation is up to date */
static bool was_announced;		/* an invalidation has arrived since the last
								 * look-up began */

static bool look_up(void);
static bool lock_catalog(void);
static void unlock_catalog(int count);
static Oid	find_function(const char *name, const Oid *arguments, int count, const char *symbol);
static bool is_attribute(HeapTuple row, int attribute, const char *value);
static void forget(Datum arg, int cacheid, uint32 hashvalue);

/* What a look-up locks. */
static const Oid catalogs[] = {ProcedureRelationId, ProcedureNameArgsNspIndexId, ProcedureOidIndexId};


bool
herald_activation_is_on(void)
{
	if (is_known || look_up())
		return activation.is_on;
	return OidIsValid(MyDatabaseId) && IsTransactionState();
}

Oid
herald_activation_notify_function(void)
{
	return activation.notify_function;
}

Oid
herald_activation_usage_function(void)
{
	return activation.usage_function;
}

/* False: it is not possible now. */
static bool
look_up(void)
{
	static bool registered = false;
	const Oid	texts[] = {TEXTOID, TEXTOID};
	Activation	found = {0};
	bool		was_on = activation.is_on;

	if (!OidIsValid(MyDatabaseId) || !IsTransactionState())
		return false;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, forget, (Datum) 0);
		registered = true;
	}
	if (!lock_catalog())
		return false;

	/* Repeat the look-up if there was a change meanwhile, but not for ever. */
	for (int attempt = 0; attempt < LOOK_UPS_MAX; attempt++)
	{
		was_announced = false;
		found.notify_function = find_function("pg_herald_notify", texts, 2, "herald_pg_notify");
		found.usage_function = find_function("pg_herald_notification_queue_usage", NULL, 0,
											 "herald_pg_notification_queue_usage");
		HERALD_STOP_POINT("activation-look-up");
		found.is_on = OidIsValid(found.notify_function);
		if (!was_announced)
			break;
	}
	unlock_catalog(lengthof(catalogs));

	/* Set the result at once at the end, since any of the above may throw. */
	activation = found;
	is_known = !was_announced;

	/*
	 * Plans that were made before contain the built-in function, which is
	 * correct but slower. Plans made with our function depend on it, and are
	 * discarded when it is dropped.
	 */
	if (activation.is_on && !was_on)
		ResetPlanCache();
	return true;
}

/* Without a wait.  False: another session has locked it. */
static bool
lock_catalog(void)
{
	for (int i = 0; i < lengthof(catalogs); i++)
	{
		if (ConditionalLockRelationOid(catalogs[i], AccessShareLock))
			continue;
		unlock_catalog(i);
		return false;
	}
	return true;
}

static void
unlock_catalog(int count)
{
	for (int i = 0; i < count; i++)
		UnlockRelationOid(catalogs[i], AccessShareLock);
}

/* Our own function of that name, or InvalidOid. */
static Oid
find_function(const char *name, const Oid *arguments, int count, const char *symbol)
{
	oidvector  *types = buildoidvector(arguments, count);
	HeapTuple	row = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(name), PointerGetDatum(types),
									  ObjectIdGetDatum(PG_CATALOG_NAMESPACE));
	Oid			function = InvalidOid;

	pfree(types);
	if (!HeapTupleIsValid(row))
		return InvalidOid;
	if (((Form_pg_proc) GETSTRUCT(row))->prolang == ClanguageId &&
		is_attribute(row, Anum_pg_proc_prosrc, symbol) && is_attribute(row, Anum_pg_proc_probin, LIBRARY))
		function = ((Form_pg_proc) GETSTRUCT(row))->oid;
	ReleaseSysCache(row);

	/*
	 * The executor looks the function up by its oid.  With this entry in the
	 * cache as well, the function is found as long as our result is valid.
	 */
	return SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(function)) ? function : InvalidOid;
}

static bool
is_attribute(HeapTuple row, int attribute, const char *value)
{
	bool		is_null;
	Datum		found = SysCacheGetAttr(PROCNAMEARGSNSP, row, (AttrNumber) attribute, &is_null);

	return !is_null && strcmp(TextDatumGetCString(found), value) == 0;
}

static void
forget(Datum arg, int cacheid, uint32 hashvalue)
{
	is_known = false;
	was_announced = true;
}
