/*-------------------------------------------------------------------------
 *
 * token.h
 *	  A position of the queue as a text that clients keep.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TOKEN_H
#define HERALD_TOKEN_H

#include "postgres.h"

#include "core/queue_layout.h"

/* Characters of a token. */
#define HERALD_TOKEN_LENGTH		84

/* What a token stands for. */
typedef struct HeraldToken
{
	HeraldPlace place;			/* everything before it ... */
	uint32		bypasses;		/* ... and so many transactions that are not in the queue: see bypass.h */
} HeraldToken;

/* What tokens are written with; it takes longer to make than to use. */
typedef struct pg_hmac_ctx HeraldTokenWriter;

/* In a transaction, whose end closes it if an error comes before that; may throw. */
extern HeraldTokenWriter *herald_token_writer_open(void);
extern void herald_token_writer_close(HeraldTokenWriter *writer);

/* Write it as a text, with a NUL.  May throw. */
extern void herald_token_write(HeraldTokenWriter *writer, HeraldToken token, char text[HERALD_TOKEN_LENGTH + 1]);

typedef enum HeraldTokenResult
{
	HERALD_TOKEN_READ,
	HERALD_TOKEN_OF_OTHER_RUN,	/* of the server */
	HERALD_TOKEN_OF_OTHER_EXTENSION /* from before it was created */
} HeraldTokenResult;

/* What a text stands for.  Throws 22023 if it is no token of this database. */
extern HeraldTokenResult herald_token_read(const char *text, HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
