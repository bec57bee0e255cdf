/*-------------------------------------------------------------------------
 *
 * activation.c
 *	  Is pg_herald switched on in this database?
 *
 * The answer is in pg_extension, for which there is no syscache before 18. But the extension
 * contains functions, and changes of pg_proc are announced to every backend: so the result is
 * kept until such an invalidation arrives.
 *
 * A function counts only if it belongs to the extension.  Otherwise a user with the right to
 * create a schema named herald could make every user that calls pg_notify() run the first
 * user's function.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#include "base/activation.h"
#include "core/stop_point.h"

#define EXTENSION_NAME	"pg_herald"
#define SCHEMA_NAME		"herald"
#define LOOK_UPS_MAX	10

typedef struct Activation
{
	bool		is_on;
	Oid			notify_function;
	Oid			usage_function;
} Activation;

static Activation activation;
static bool is_known;			/* activation is up to date */
static bool was_announced;		/* an invalidation has arrived since the last look-up began */

static void look_up(void);
static Oid	find_function(Oid extension, Oid schema, const char *name,
						  const Oid *arguments, int count);
static void forget(Datum arg, int cacheid, uint32 hashvalue);


bool
herald_activation_is_on(void)
{
	if (!is_known)
		look_up();
	return activation.is_on;
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

static void
look_up(void)
{
	static bool registered = false;
	const Oid	texts[] = {TEXTOID, TEXTOID};
	Activation	found = {0};
	bool		was_on = activation.is_on;
	Oid			extension;
	Oid			schema;

	if (!OidIsValid(MyDatabaseId) || !IsTransactionState())
		return;

	if (!registered)
	{
		CacheRegisterSyscacheCallback(PROCOID, forget, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget, (Datum) 0);
		registered = true;
	}

	/* Repeat the look-up if there was a change meanwhile, but not for ever. */
	for (int attempt = 0; attempt < LOOK_UPS_MAX; attempt++)
	{
		was_announced = false;
		found = (Activation) {0};
		extension = get_extension_oid(EXTENSION_NAME, true);
		schema = OidIsValid(extension) ? get_namespace_oid(SCHEMA_NAME, true) : InvalidOid;
		if (OidIsValid(schema))
		{
			found.notify_function = find_function(extension, schema, "pg_notify", texts, 2);
			found.usage_function = find_function(extension, schema,
												 "pg_notification_queue_usage", NULL, 0);
		}
		HERALD_STOP_POINT("activation-look-up");
		found.is_on = OidIsValid(found.notify_function);
		if (!was_announced)
			break;
	}

	/* Set the result at once at the end, since any of the above may throw. */
	activation = found;
	is_known = !was_announced;

	/*
	 * Plans that were made before contain the built-in function, which is correct but slower.
	 * Plans made with our function depend on it, and are discarded when it is dropped.
	 */
	if (activation.is_on && !was_on)
		ResetPlanCache();
}

/* The extension's own function of that name, or InvalidOid. */
static Oid
find_function(Oid extension, Oid schema, const char *name, const Oid *arguments, int count)
{
	oidvector  *types = buildoidvector(arguments, count);
	Oid			function;

	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							   CStringGetDatum(name), PointerGetDatum(types),
							   ObjectIdGetDatum(schema));
	pfree(types);
	if (OidIsValid(function) &&
		getExtensionOfObject(ProcedureRelationId, function) != extension)
		return InvalidOid;

	/*
	 * The executor looks the function up by its oid.  With this entry in the cache as well,
	 * the function is found as long as our result is valid.
	 */
	return SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(function)) ? function : InvalidOid;
}

static void
forget(Datum arg, int cacheid, uint32 hashvalue)
{
	is_known = false;
	was_announced = true;
}
