/*-------------------------------------------------------------------------
 *
 * wal_parts.c
 *	  The parts of a transaction's message that have been met in the WAL.
 *
 * Reading may begin after the first parts of a message.  Each later part says where part 1 begins, so all parts are
 * read again from there.  Parts are expected in order: since every record is read, no part that pg_herald has written
 * can be missing between two parts that are met.  If a part is missing there nevertheless, pg_herald has not written
 * this WAL, and the message never becomes complete.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wal_parts.h"

#include <stddef.h>

static bool is_next(const HeraldWalParts *parts, const HeraldWalMessage *message);


HeraldWalParts
herald_wal_parts_begin(uint64_t run, uint64_t at)
{
	HeraldWalParts parts = {.run = run,.first = at,.next = 1};

	return parts;
}

void
herald_wal_parts_take(HeraldWalParts *parts, uint64_t at, const HeraldWalMessage *message)
{
	bool		is_in_order;

	if (parts->count == 0)
	{
		parts->lacks_parts = message->part > 1;
		parts->next = message->part;
	}
	is_in_order = is_next(parts, message);
	parts->is_complete = is_in_order && message->is_last;
	parts->next = is_in_order && !message->is_last ? message->part + 1 : 0;
	parts->count++;
	parts->last = at;
	parts->place = message->place;
	parts->sender = message->sender;
	if (message->first != 0 && message->first < parts->first)
		parts->first = message->first;
}

static bool
is_next(const HeraldWalParts *parts, const HeraldWalMessage *message)
{
	return message->run == parts->run && message->part == parts->next;
}

HeraldWalParts
herald_wal_parts_again(const HeraldWalParts *parts)
{
	return herald_wal_parts_begin(parts->run, parts->first);
}

HeraldWalPart
herald_wal_parts_read(const HeraldWalParts *parts, HeraldWalParts *again, uint64_t at, const HeraldWalMessage *message)
{
	if (message != NULL && message->kind == HERALD_WAL_NOTIFICATIONS && is_next(again, message))
	{
		herald_wal_parts_take(again, at, message);
		return HERALD_WAL_PART_NEXT;
	}
	return parts->lacks_parts && at < parts->last ? HERALD_WAL_PART_OTHER : HERALD_WAL_PART_MISSING;
}

bool
herald_wal_parts_are_read(const HeraldWalParts *parts, const HeraldWalParts *again)
{
	return again->last == parts->last;
}
