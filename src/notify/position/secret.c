/*-------------------------------------------------------------------------
 *
 * secret.c
 *	  The secret by which this database recognises its positions.
 *
 * CREATE EXTENSION draws it and puts it into the table herald.secret, which reaches standbys and
 * survives restarts as any table does; pg_dump leaves it out, so a restored database has a secret
 * of its own.  A session reads it once: it changes only with CREATE EXTENSION, which changes the
 * oids of the extension's functions as well.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/activation.h"
#include "base/compat.h"
#include "base/shared.h"
#include "notify/position/secret.h"

#define SCHEMA_NAME		"herald"
#define TABLE_NAME		"secret"

static void read_table(uint8 secret[HERALD_SECRET_BYTES]);


const uint8 *
herald_secret(bool *of_database)
{
	static uint8 kept[HERALD_SECRET_BYTES];
	static Oid	kept_for;		/* a function of the extension whose secret this is */
	Oid			function = herald_activation_is_on() ? herald_activation_notify_function() : InvalidOid;

	*of_database = OidIsValid(function);
	if (!*of_database)
		return herald_control->token_key;
	if (kept_for != function)
	{
		read_table(kept);
		kept_for = function;
	}
	return kept;
}

static void
read_table(uint8 secret[HERALD_SECRET_BYTES])
{
	Relation	table = table_open(get_relname_relid(TABLE_NAME, get_namespace_oid(SCHEMA_NAME, false)),
								   AccessShareLock);
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	row = systable_getnext(scan);
	bool		is_null = true;
	Datum		value = HeapTupleIsValid(row) ? heap_getattr(row, 1, RelationGetDescr(table), &is_null) : (Datum) 0;
	bytea	   *bytes = is_null ? NULL : DatumGetByteaPP(value);

	if (bytes == NULL || VARSIZE_ANY_EXHDR(bytes) != HERALD_SECRET_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table herald.secret does not have its row of %d bytes", HERALD_SECRET_BYTES),
				 errdetail("CREATE EXTENSION has drawn it; without it no position can be written or read."),
				 errhint("Drop the extension pg_herald, and create it again.")));
	memcpy(secret, VARDATA_ANY(bytes), HERALD_SECRET_BYTES);
	systable_endscan(scan);
	table_close(table, AccessShareLock);
}
