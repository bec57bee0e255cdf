/*-------------------------------------------------------------------------
 *
 * wal_parts.h
 *	  The parts of a transaction's message that have been met in the WAL.
 *
 * A transaction that notifies logged channels writes one message, in parts 1, 2 and so on (wal_message.h).  Records
 * of other transactions may lie between the parts.
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
	uint64_t	first;			/* no record of a part begins before this
								 * place in the WAL */
	uint64_t	last;			/* start of the record of the latest part that
								 * was met; 0: no part was met */
	uint64_t	place;			/* the batch's place in the queue of `run`, if
								 * the message is complete */
	HeraldSender sender;		/* each part contains the same sender */
	uint32_t	count;			/* number of parts that were met */
	uint32_t	next;			/* the number of the part that is expected
								 * next; 0: no part is expected */
	bool		lacks_parts;	/* the first part that was met is not part 1,
								 * since reading began later */
	bool		is_complete;	/* the last part of the message was met, and
								 * no part is missing since the first part
								 * that was met */
} HeraldWalParts;

/* Returns the state before any part is met.  at: the place in the WAL where the transaction was met first. */
extern HeraldWalParts herald_wal_parts_begin(uint64_t run, uint64_t at);

/* Note a part that was met in a record that begins at `at`. */
extern void herald_wal_parts_take(HeraldWalParts *parts, uint64_t at, const HeraldWalMessage *message);

/*
 * The result for one record when a complete message is read again.  If `lacks_parts` is set, all records from `first`
 * to `last` are read again; otherwise only the records in which parts were met are read again.
 */
typedef enum HeraldWalPart
{
	HERALD_WAL_PART_NEXT,		/* the record has the expected part, which was
								 * noted */
	HERALD_WAL_PART_OTHER,		/* the record does not have the expected part:
								 * pass over the record */
	HERALD_WAL_PART_MISSING		/* the expected part is missing, so the
								 * message cannot be read */
} HeraldWalPart;

/* Returns the state before any part is read again. */
extern HeraldWalParts herald_wal_parts_again(const HeraldWalParts *parts);

/*
 * Take a record that begins at `at` and is read again.  parts: the state after the first reading.  again: the state
 * of the second reading.  message: the transaction's message in the record; NULL: the record has no such message.
 */
extern HeraldWalPart herald_wal_parts_read(const HeraldWalParts *parts, HeraldWalParts *again,
										   uint64_t at, const HeraldWalMessage *message);

/* Have all parts been read again? */
extern bool herald_wal_parts_are_read(const HeraldWalParts *parts, const HeraldWalParts *again);

#endif							/* HERALD_WAL_PARTS_H */
