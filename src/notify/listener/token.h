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

/*
 * Write it as a text, with a NUL.  In a transaction; may throw.
 */
extern void herald_token_write(HeraldToken token, char text[HERALD_TOKEN_LENGTH + 1]);

/*
 * What a text stands for.  False: it is of another run of the server, or from
 * before the extension was created.  Throws 22023 if it is no token of this database.
 */
extern bool herald_token_read(const char *text, HeraldToken *token);

#endif							/* HERALD_TOKEN_H */
