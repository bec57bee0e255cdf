/*-------------------------------------------------------------------------
 *
 * token.h
 *	  A token: a position as text, for clients to store.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TOKEN_H
#define HERALD_TOKEN_H

#include "postgres.h"

#include "access/xlogdefs.h"

#include "core/queue_layout.h"
#include "core/receipt.h"
#include "notify/position/gone.h"

/* Maximum length of a token, in bytes. */
#define HERALD_TOKEN_MAX		173

/* The contents of a token. */
typedef struct HeraldToken
{
	uint64		run;			/* the run of the server to whose queue
								 * `place` belongs */
	HeraldPosition place;		/* everything before it in that server's queue
								 * has been received */
	uint32		bypasses;		/* number of transactions that have bypassed
								 * the queue up to there (bypass.h) */
	bool		moved;			/* the client has received more by the WAL
								 * than `place` says, so `place` cannot be
								 * used, even on its own server */
	HeraldReceipt wal;
} HeraldToken;

/* The keyed hash of tokens; creating it costs more than using it. */
typedef struct pg_hmac_ctx HeraldTokenHash;

/* Called in a transaction, whose end frees it after an error; may throw. */
extern HeraldTokenHash *herald_token_hash_open(void);
extern void herald_token_hash_close(HeraldTokenHash *hash);

/* Write the token as text, with a NUL.  In a transaction; may throw. */
extern void herald_token_write(HeraldTokenHash *hash, const HeraldToken *token,
							   char text[HERALD_TOKEN_MAX + 1]);

/* Read a token from text.  HERALD_GONE_DATABASE: it is of another database.  Throws 22023 if it is no token. */
extern HeraldGone herald_token_read(const char *text, HeraldToken *token);

/*
 * Is this token, whose place can be used, older than the current database, which then has the oid of one that was dropped?
 * On a standby, to be asked when the relay has come to what is visible.
 */
extern bool herald_token_precedes_database(const HeraldToken *token);

/* Can the place be used: is it of this run of the server, and has the token not moved? */
extern bool herald_token_is_here(const HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
