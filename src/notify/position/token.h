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
	HeraldPosition place;		/* the client has received everything before
								 * this place in that server's queue */
	uint32		bypasses;		/* number of transactions that have bypassed
								 * the queue up to `place` (bypass.h) */
	bool		moved;			/* the client has received more by the WAL
								 * than `place` says, so `place` cannot be
								 * used, even on its own server */
	HeraldReceipt wal;
} HeraldToken;

/* The keyed hash of tokens; creating it costs more than using it. */
typedef struct pg_hmac_ctx HeraldTokenHash;

/* Create the hash.  In a transaction, whose abort frees the hash; may throw. */
extern HeraldTokenHash *herald_token_hash_open(void);
extern void herald_token_hash_close(HeraldTokenHash *hash);

/* Write the token as text, with a NUL.  In a transaction; may throw. */
extern void herald_token_write(HeraldTokenHash *hash, const HeraldToken *token,
							   char text[HERALD_TOKEN_MAX + 1]);

/* Read a token from text.  HERALD_GONE_DATABASE: it is not of this database.  Throws 22023 if the text is no token. */
extern HeraldGone herald_token_read(const char *text, HeraldToken *token);

/*
 * Is this token older than the current database, and so of a dropped one with the same oid?  Only for a token whose
 * place can be used; on a standby, only after herald_relay_await_visible().
 */
extern bool herald_token_precedes_database(const HeraldToken *token);

/* Can the token's place be used?  True if it is of this run of the server, and the token has not moved. */
extern bool herald_token_is_here(const HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
