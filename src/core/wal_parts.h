/*-------------------------------------------------------------------------
 *
 * wal_parts.h
 *	  Which parts of a transaction's message have been met in the WAL.
 *
 * A transaction that notifies logged channels writes one message, in parts 1, 2 and so on
 * (wal_message.h).  Records of other transactions lie between the parts.
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
	uint64_t	run;			/* the run of the server that wrote the parts */
	uint64_t	first;			/* no part begins earlier than here in the WAL */
	uint64_t	last;			/* where the latest part that was met begins;
								 * 0: none was met */
	uint64_t	place;			/* the batch's place in that server's queue,
								 * if the message is complete */
	uint32_t	count;			/* number of parts that were met */
	uint32_t	next;			/* the number of the part that is expected
								 * next; 0: none */
	bool		lacks_parts;	/* reading began after the first parts */
	bool		is_complete;	/* all parts from the first that was met to
								 * the message's last one were met */
} HeraldWalParts;

/* No part was met yet.  at: where the transaction's first record that was met begins. */
extern HeraldWalParts herald_wal_parts_begin(uint64_t run, uint64_t at);

/* A part was met in a record that begins at `at`. */
extern void herald_wal_parts_take(HeraldWalParts *parts, uint64_t at, const HeraldWalMessage *message);

/*
 * The result for one record when a complete message is read again: record by record from `first` on
 * if it lacks parts; else only the records of its parts.
 */
typedef enum HeraldWalPart
{
	HERALD_WAL_PART_NEXT,		/* the expected part, which was taken */
	HERALD_WAL_PART_OTHER,		/* pass over this record */
	HERALD_WAL_PART_MISSING		/* the part that is expected is not there */
} HeraldWalPart;

/* No part was read again yet. */
extern HeraldWalParts herald_wal_parts_again(const HeraldWalParts *parts);

/* A record that begins at `at` is read again.  message: the transaction's message in the record; NULL: none. */
extern HeraldWalPart herald_wal_parts_read(const HeraldWalParts *parts, HeraldWalParts *again,
										   uint64_t at, const HeraldWalMessage *message);

/* Have all parts been read again? */
extern bool herald_wal_parts_are_read(const HeraldWalParts *parts, const HeraldWalParts *again);

#endif							/* HERALD_WAL_PARTS_H */
