/*-------------------------------------------------------------------------
 *
 * bypass.c
 *	  Transactions whose notifications go past our queue, by the server's own.
 *
 * What goes there cannot be read again, so a session that wants to read from a position
 * before that must not be told that it has everything.  These transactions are counted, and
 * a token holds the count.  Databases share a few counters, so one may be taken for another,
 * which is on the safe side.
 *
 * [B1] A transaction is under way from before it can be seen until it is counted.  So a
 * session that finds it neither under way nor counted, after it has been registered with
 * the server, hears it from there.
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

static HeraldBypass *mine(void);


void
herald_bypass_begin(void)
{
	if (!is_begun)
		atomic_fetch_add(&mine()->under_way, 1);
	is_begun = true;
}

void
herald_bypass_end(bool committed)
{
	if (!is_begun)
		return;
	if (committed)
		atomic_fetch_add(&mine()->committed, 1);
	atomic_fetch_sub(&mine()->under_way, 1);	/* [B1] after that */
	is_begun = false;
}

uint32
herald_bypass_count(void)
{
	return atomic_load(&mine()->committed);
}

bool
herald_bypass_since(uint32 count)
{
	/* [B1] in this order: what is not under way any more is counted */
	return atomic_load(&mine()->under_way) > 0 || herald_bypass_count() != count;
}

static HeraldBypass *
mine(void)
{
	return &herald_control->bypasses[MyDatabaseId % HERALD_BYPASSES];
}
