/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Transactions whose notifications go past our queue, by the server's own.
 *
 * What goes there cannot be read again, so a session that wants to read from a position
 * before that must not be told that it has everything.  These transactions are counted, and
 * a token holds the count.  A database gets a counter with its first token, or with the first
 * such transaction while the extension is there; where there are too many, some share the
 * last, which is on the safe side.
 *
 * [B1] A transaction is under way from before it can be seen until it is counted.  So a
 * session that finds it neither under way nor counted, after it has been registered with
 * the server, hears it from there.  (One that began before the database had a counter or the
 * extension is counted just after it can be seen.)
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/shared.h"
#include "notify/storage/bypass.h"

/* This process is counted. */
static bool is_begun;

static HeraldBypass *find(bool claims);


void
herald_bypass_begin(void)
{
	if (!is_begun)
		atomic_fetch_add(&find(true)->under_way, 1);
	is_begun = true;
}

void
herald_bypass_end(bool committed)
{
	HeraldBypass *counter;

	if (!is_begun)
		return;
	counter = find(true);
	if (committed)
		atomic_fetch_add(&counter->committed, 1);
	atomic_fetch_sub(&counter->under_way, 1);	/* [B1] after that */
	is_begun = false;
}

uint32
herald_bypass_count(void)
{
	HeraldBypass *counter = find(false);

	return counter != NULL ? atomic_load(&counter->committed) : 0;
}

uint32
herald_bypass_count_from_now_on(void)
{
	return atomic_load(&find(true)->committed);
}

bool
herald_bypass_is_counted(void)
{
	return find(false) != NULL;
}

bool
herald_bypass_since(uint32 count)
{
	HeraldBypass *counter = find(false);

	if (counter == NULL)
		return count != 0;

	/* [B1] in this order: what is not under way any more is counted */
	return atomic_load(&counter->under_way) > (is_begun ? 1 : 0) ||
		atomic_load(&counter->committed) != count;
}

/* This database's.  NULL: it has none, and does not need one yet. */
static HeraldBypass *
find(bool claims)
{
	HeraldBypass *bypasses = herald_control->bypasses;

	for (int i = 0; i < HERALD_BYPASSES - 1; i++)
	{
		uint32		owner = atomic_load(&bypasses[i].database);

		if (owner == 0 && !claims)
			return NULL;
		if (owner == 0 && atomic_compare_exchange_strong(&bypasses[i].database, &owner, MyDatabaseId))
			owner = MyDatabaseId;
		if (owner == MyDatabaseId)
			return &bypasses[i];
	}
	return &bypasses[HERALD_BYPASSES - 1];
}
