/*-------------------------------------------------------------------------
 *
 * at_commit.c
 *	  What a module may do in its own callback before the commit.
 *
 * That callback runs after pg_herald's if this module was loaded first, otherwise before it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "herald_client.h"

PG_FUNCTION_INFO_V1(client_at_commit);

/* The action in this transaction; empty for none. */
static struct
{
	char		what[NAMEDATALEN];
	char		argument[NAMEDATALEN];
}			wanted;

/* The action in the next transaction, which may be an empty one. */
static bool notifies_next;
static bool fails_next;

static void at_transaction_event(XactEvent event, void *arg);
static void do_it(void);
static void run_statement(const char *sql);


void
client_at_commit_install(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/* at_commit(what text, argument text) → void */
Datum
client_at_commit(PG_FUNCTION_ARGS)
{
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), wanted.what, NAMEDATALEN);
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(1), wanted.argument, NAMEDATALEN);
	PG_RETURN_VOID();
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		bool		fails = fails_next;
		bool		notifies = notifies_next;

		fails_next = notifies_next = false;
		if (notifies)
			client_send_notification("next", "x");
		if (fails)
			ereport(ERROR, (errmsg("herald_client was told to fail")));
		do_it();
	}
	wanted.what[0] = '\0';
}

static void
do_it(void)
{
	if (strcmp(wanted.what, "notify") == 0)
		client_send_notification("c", wanted.argument);
	else if (strcmp(wanted.what, "statement") == 0)
		run_statement(psprintf("NOTIFY c, %s", quote_literal_cstr(wanted.argument)));
	else if (strcmp(wanted.what, "invalidate") == 0)
		client_settings_invalidate(wanted.argument);
	else if (strcmp(wanted.what, "next") == 0)
	{
		notifies_next = strcmp(wanted.argument, "notify") == 0;
		fails_next = strcmp(wanted.argument, "fail") == 0;
	}
}

static void
run_statement(const char *sql)
{
	SPI_connect();
	SPI_execute(sql, false, 0);
	SPI_finish();
}
