/*-------------------------------------------------------------------------
 *
 * database.c
 *	  What all sessions of a database share.
 *
 * A database gets an entry when one of its sessions asks for a position, or changes the settings
 * of its channels, and keeps it.  Entries are given out in the order of the array, so the first
 * unused one ends a search.  When there are no more, the other databases share the last one.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/database.h"


HeraldDatabase *
herald_database_find(Oid oid)
{
	HeraldDatabase *databases = herald_control->databases;

	for (int i = 0; i < HERALD_DATABASES - 1; i++)
	{
		uint32		owner = atomic_load(&databases[i].oid);

		if (owner == InvalidOid)
			return NULL;
		if (owner == oid)
			return &databases[i];
	}
	return &databases[HERALD_DATABASES - 1];
}

HeraldDatabase *
herald_database_claim(void)
{
	static HeraldDatabase *mine;

	while (mine == NULL)
	{
		mine = herald_database_find(MyDatabaseId);
		for (int i = 0; i < HERALD_DATABASES - 1 && mine == NULL; i++)
		{
			uint32		owner = InvalidOid;

			if (atomic_compare_exchange_strong(&herald_control->databases[i].oid, &owner, MyDatabaseId) ||
				owner == MyDatabaseId)
				mine = &herald_control->databases[i];
		}
	}
	return mine;
}

void
herald_database_created(Oid oid)
{
	HeraldDatabase *database = herald_database_find(oid);

	/* Where databases share an entry, this would concern the others as well. */
	if (database != NULL && atomic_load(&database->oid) == oid)
		atomic_store(&database->created_at, atomic_load(&herald_queue->head));
}
