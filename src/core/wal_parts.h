/*-------------------------------------------------------------------------
 *
 * wal_parts.h
 *	  Which parts of a transaction's message have been met in the WAL.
 *
 * A transaction that notifies logged channels writes one message, in parts 1, 2 and so on
 * (wal_message.h); records of other transactions lie between them.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAL_PARTS_H
#define HERALD_WAL_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wal_message.h"

typedef struct HeraldWalParts
{
	uint64_t	run;			/* of the server that wrote them */
	uint64_t	first;			/* no part begins before this place */
	uint64_t	last;			/* the latest that was met begins here, or 0 */
	uint64_t	place;			/* in that server's queue, when complete */
	uint32_t	count;			/* of parts that were met */
	uint32_t	next;			/* the number that is expected next; 0: none */
	bool		lacks_parts;	/* reading began behind the first ones */
	bool		is_complete;	/* all from the first that was met to the end */
} HeraldWalParts;

/* None was met yet.  at: where the transaction's first record begins that was met. */
extern HeraldWalParts herald_wal_parts_begin(uint64_t run, uint64_t at);

/* A part is met in a record that begins there. */
extern void herald_wal_parts_take(HeraldWalParts *parts, uint64_t at, const HeraldWalMessage *message);

/*
 * A message that is complete is read again, in order.  If parts are lacking, from `first` on, record
 * by record; otherwise, only the records where its parts begin.
 */
typedef enum HeraldWalPart
{
	HERALD_WAL_PART_NEXT,		/* it was taken */
	HERALD_WAL_PART_OTHER,		/* pass over this record */
	HERALD_WAL_PART_MISSING		/* the part that is expected is not there */
} HeraldWalPart;

/* None was read again yet. */
extern HeraldWalParts herald_wal_parts_again(const HeraldWalParts *parts);

/* A record that begins there is read again.  message: what the transaction has written in it; NULL: no message. */
extern HeraldWalPart herald_wal_parts_read(const HeraldWalParts *parts, HeraldWalParts *again,
										   uint64_t at, const HeraldWalMessage *message);

/* Have all of them been read again? */
extern bool herald_wal_parts_are_read(const HeraldWalParts *parts, const HeraldWalParts *again);

#endif							/* HERALD_WAL_PARTS_H */
