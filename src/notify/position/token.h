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

/* Maximum length of a token, in bytes, without the NUL. */
#define HERALD_TOKEN_MAX		173

/* The contents of a token. */
typedef struct HeraldToken
{
	uint64		run;			/* `place` is in the queue of this run of a
								 * server */
	HeraldPosition place;		/* the client has received everything before
								 * this place in the queue of the run `run` */
	uint32		bypasses;		/* number of the last bypass that is treated
								 * as before `place`; the client may lack
								 * notifications of later bypasses (bypass.h) */
	bool		moved;			/* the client has also received notifications
								 * from the WAL, so `place` is too early and
								 * must not be used, not even in the queue of
								 * `run` */
	HeraldReceipt wal;
} HeraldToken;

/*
 * The keyed hash that makes the tags of tokens.  Creating the hash costs more than using the hash, so use one hash for
 * many tokens.
 */
typedef struct pg_hmac_ctx HeraldTokenHash;

/* Create the hash.  Called in a transaction, whose abort frees the hash; may throw. */
extern HeraldTokenHash *herald_token_hash_open(void);
extern void herald_token_hash_close(HeraldTokenHash *hash);

/* Write the token as text that ends with a NUL.  Called in a transaction; may throw. */
extern void herald_token_write(HeraldTokenHash *hash, const HeraldToken *token,
							   char text[HERALD_TOKEN_MAX + 1]);

/*
 * Read a token from text.  Returns HERALD_GONE_DATABASE if the token is not of this database, or if its tag is wrong;
 * otherwise returns HERALD_GONE_NOTHING.  Throws 22023 if the text is not a token, or has another version.
 */
extern HeraldGone herald_token_read(const char *text, HeraldToken *token);

/*
 * Returns true if this token is older than the current database, which means that the token is of a dropped database
 * with the same oid.  Called only if herald_token_is_here() is true, and on a standby only after
 * herald_relay_await_visible().
 */
extern bool herald_token_precedes_database(const HeraldToken *token);

/*
 * Is the token's place a place in this server's queue?  Returns true if the token is of this run of the server, and
 * `moved` is not set.
 */
extern bool herald_token_is_here(const HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
