/*-------------------------------------------------------------------------
 *
 * read_row.c
 *	  The rows of herald.read().
 *
 * Consecutive notifications are often sent by the same role, so the name of the last role is kept.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/xid8.h"

#include "notify/sql/read_row.h"

static void look_up(HeraldReadRow *row, Oid role);


void
herald_read_row_begin(HeraldReadRow *row)
{
	memset(row, 0, sizeof(*row));
	row->memory = AllocSetContextCreate(CurrentMemoryContext, "pg_herald row", ALLOCSET_DEFAULT_SIZES);
	herald_read_row_clear(row);
}

void
herald_read_row_set(HeraldReadRow *row, const HeraldEntry *entry, HeraldSender sender, TimestampTz committed_at)
{
	MemoryContext caller = MemoryContextSwitchTo(row->memory);

	if (sender.role != row->role)
		look_up(row, sender.role);
	row->values[HERALD_READ_CHANNEL] = CStringGetTextDatum(herald_entry_channel(entry));
	row->values[HERALD_READ_PAYLOAD] =
		PointerGetDatum(cstring_to_text_with_len(herald_entry_payload(entry), (int) herald_entry_payload_length(entry)));
	row->values[HERALD_READ_PID] = Int32GetDatum(herald_entry_pid(entry));
	row->values[HERALD_READ_COMMITTED_AT] = TimestampTzGetDatum(committed_at);
	row->values[HERALD_READ_XID] = FullTransactionIdGetDatum(FullTransactionIdFromU64(sender.xid));
	row->values[HERALD_READ_SENDER] = NameGetDatum(&row->role_name);
	memset(row->nulls, 0, sizeof(row->nulls));
	row->nulls[HERALD_READ_XID] = sender.xid == 0;
	row->nulls[HERALD_READ_SENDER] = !row->role_exists;
	MemoryContextSwitchTo(caller);
}

/* Look up the name of the sender's role.  The role may have been dropped after the sender's commit. */
static void
look_up(HeraldReadRow *row, Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	row->role = role;
	row->role_exists = name != NULL;
	if (row->role_exists)
		namestrcpy(&row->role_name, name);
}

void
herald_read_row_clear(HeraldReadRow *row)
{
	for (int i = 0; i < HERALD_READ_COLUMNS; i++)
		row->nulls[i] = i != HERALD_READ_POSITION;
}

void
herald_read_row_store(HeraldReadRow *row, const char *position, ReturnSetInfo *result)
{
	MemoryContext caller = MemoryContextSwitchTo(row->memory);

	row->values[HERALD_READ_POSITION] = CStringGetTextDatum(position);
	MemoryContextSwitchTo(caller);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
	MemoryContextReset(row->memory);
}
