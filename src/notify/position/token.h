/*-------------------------------------------------------------------------
 *
 * token.h
 *	  A token: a position of the queue as text, for clients to store.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TOKEN_H
#define HERALD_TOKEN_H

#include "postgres.h"

#include "core/queue_layout.h"

/* Length of a token in characters. */
#define HERALD_TOKEN_LENGTH		84

/* The contents of a token. */
typedef struct HeraldToken
{
	HeraldPlace place;			/* everything before it has been received */
	uint32		bypasses;		/* and this number of transactions that bypassed the queue: see
								 * bypass.h */
} HeraldToken;

/* The keyed hash of tokens; creating it costs more than using it. */
typedef struct pg_hmac_ctx HeraldTokenHash;

/* Called in a transaction, whose end frees it after an error; may throw. */
extern HeraldTokenHash *herald_token_hash_open(void);
extern void herald_token_hash_close(HeraldTokenHash *hash);

/* Write the token as text, with a NUL.  May throw. */
extern void herald_token_write(HeraldTokenHash *hash, HeraldToken token, char text[HERALD_TOKEN_LENGTH + 1]);

typedef enum HeraldTokenResult
{
	HERALD_TOKEN_READ,
	HERALD_TOKEN_OF_OTHER_RUN,	/* of another run of the server */
	HERALD_TOKEN_OF_OTHER_EXTENSION /* from before the extension was created */
} HeraldTokenResult;

/* Read a token from text.  Throws 22023 if it is not a token of this database. */
extern HeraldTokenResult herald_token_read(const char *text, HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
