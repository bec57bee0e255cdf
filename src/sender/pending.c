/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  The notifications of the current transaction that await its commit.
 *
 * They are kept in one arena, already in the form that they have in the log,
 * so that publishing them is one copy.
 *
 * Subtransactions nest strictly: what a subtransaction adds stands at the end
 * of the arena, behind what its parents had added.  So rolling one back is to
 * cut the arena where it began, and committing it is to forget where it began:
 * nothing is merged, whatever the number of entries.
 *
 * The same holds for duplicates.  An entry that some enclosing level has
 * already added need not be added again, since a level cannot outlive those
 * that enclose it.  One hash of all entries serves all levels; it is probed
 * linearly.  What a rollback removes is what was inserted last, so that their
 * places can simply be emptied: nobody inserted earlier was pushed aside by
 * them.  (Growing the hash inserts in the arena's order again.)
 *
 * The hash is built when there are enough entries to make it worthwhile, as in
 * PostgreSQL since 13.  The idea of constant-time elimination was first
 * proposed by Gianni Ciolli, pgsql-hackers, April 2011.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "sender/pending.h"

/* From this many entries on, a hash finds duplicates. */
#define HASH_FROM_COUNT			16

/* The arena's first size in bytes; and what is kept between transactions. */
#define ARENA_SIZE_MIN			1024
#define ARENA_SIZE_KEPT			((uint64) 64 * 1024)

/* A place of the hash: offset in the arena / 8, plus 1; 0 is empty. */
typedef struct HashPlace
{
	uint32		entry;
	uint32		hash;			/* of channel and payload */
} HashPlace;

/* Offsets of entries, in units of 8 bytes, must fit. */
#define ARENA_SIZE_MAX			((uint64) (PG_UINT32_MAX - 1) * HERALD_ALIGN)

/* Where a subtransaction's entries begin. */
typedef struct Level
{
	int			nesting;		/* GetCurrentTransactionNestLevel() */
	uint64		start;			/* bytes used and entries before it */
	uint32		start_count;
} Level;

static struct
{
	char	   *arena;			/* in TopMemoryContext */
	uint64		size;			/* bytes allocated */
	uint64		used;
	uint32		count;			/* entries */

	HashPlace  *places;			/* NULL: no hash (yet) */
	uint32		places_mask;	/* their number, a power of two, less 1 */

	Level	   *levels;			/* innermost last; level 1 is not among them */
	int			levels_size;
	int			levels_used;
}			pending;

static void open_level(int level);
static void close_levels(int level, bool rollback);
static HeraldEntry *append_room(uint64 length);
static void write_entry(HeraldEntry *entry, const char *channel, size_t channel_length,
						const char *payload, size_t payload_length);
static uint32 hash_entry(const HeraldEntry *entry);
static bool is_duplicate(const HeraldEntry *entry, uint32 hash);
static bool same(const HeraldEntry *a, const HeraldEntry *b);
static void hash_make_room(void);
static void hash_insert(const HeraldEntry *entry, uint32 hash);
static void hash_remove_from(uint64 start);
static HeraldEntry *entry_at(uint64 offset);


bool
herald_pending_add(int level, const char *channel, size_t channel_length,
				   const char *payload, size_t payload_length)
{
	uint64		length = herald_entry_length(channel_length, payload_length);
	HeraldEntry *entry = append_room(length);
	uint32		hash;

	/* Whatever may fail comes before the entry counts. */
	if (pending.count + 1 >= HASH_FROM_COUNT)
		hash_make_room();
	if (level > 1)
		open_level(level);

	write_entry(entry, channel, channel_length, payload, payload_length);
	hash = pending.places ? hash_entry(entry) : 0;
	if (is_duplicate(entry, hash))
		return false;

	if (pending.places)
		hash_insert(entry, hash);
	pending.used += length;
	pending.count++;
	return true;
}

void
herald_pending_subcommit(int level)
{
	close_levels(level, false);
}

void
herald_pending_subabort(int level)
{
	close_levels(level, true);
}

void
herald_pending_reset(void)
{
	pending.used = 0;
	pending.count = 0;
	pending.levels_used = 0;
	if (pending.places)
	{
		pfree(pending.places);
		pending.places = NULL;
	}
	if (pending.size > ARENA_SIZE_KEPT)
	{
		pfree(pending.arena);
		pending.arena = NULL;
		pending.size = 0;
	}
}

uint32
herald_pending_count(void)
{
	return pending.count;
}

const char *
herald_pending_entries(uint64 *length)
{
	*length = pending.used;
	return pending.arena;
}

const HeraldEntry *
herald_pending_first(void)
{
	return pending.count > 0 ? entry_at(0) : NULL;
}

const HeraldEntry *
herald_pending_next(const HeraldEntry *entry)
{
	uint64		next = (const char *) entry - pending.arena + entry->length;

	return next < pending.used ? entry_at(next) : NULL;
}

/* Remember where this level's entries begin, if it has none yet. */
static void
open_level(int level)
{
	if (pending.levels_used > 0 &&
		pending.levels[pending.levels_used - 1].nesting >= level)
		return;

	if (pending.levels_used == pending.levels_size)
	{
		int			size = Max(8, pending.levels_size * 2);

		if (pending.levels == NULL)
			pending.levels = MemoryContextAlloc(TopMemoryContext, size * sizeof(Level));
		else
			pending.levels = repalloc_huge(pending.levels, size * sizeof(Level));
		pending.levels_size = size;
	}
	pending.levels[pending.levels_used++] = (Level) {
		.nesting = level,
		.start = pending.used,
		.start_count = pending.count,
	};
}

static void
close_levels(int level, bool rollback)
{
	while (pending.levels_used > 0 &&
		   pending.levels[pending.levels_used - 1].nesting >= level)
	{
		Level	   *innermost = &pending.levels[pending.levels_used - 1];

		if (rollback)
		{
			if (pending.places)
				hash_remove_from(innermost->start);
			pending.used = innermost->start;
			pending.count = innermost->start_count;
		}
		else if (level - 1 > 1 &&
				 (pending.levels_used == 1 || innermost[-1].nesting < level - 1))
		{
			/* The parent had added nothing: it begins where this one began. */
			innermost->nesting = level - 1;
			return;
		}
		pending.levels_used--;
	}
}

/* Room at the end of the arena for an entry, which does not count yet. */
static HeraldEntry *
append_room(uint64 length)
{
	uint64		needed = pending.used + length;

	if (needed > pending.size)
	{
		uint64		size = Max(ARENA_SIZE_MIN, pending.size * 2);

		while (size < needed)
			size *= 2;
		if (size > ARENA_SIZE_MAX)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many notifications in one transaction"),
					 errdetail("Its notifications would take more than %llu bytes.",
							   (unsigned long long) ARENA_SIZE_MAX)));
		if (pending.arena == NULL)
			pending.arena = MemoryContextAllocHuge(TopMemoryContext, size);
		else
			pending.arena = repalloc_huge(pending.arena, size);
		pending.size = size;
	}
	return entry_at(pending.used);
}

static void
write_entry(HeraldEntry *entry, const char *channel, size_t channel_length,
			const char *payload, size_t payload_length)
{
	uint64		length = herald_entry_length(channel_length, payload_length);
	int32		pid = pg_hton32(MyProcPid);
	char	   *body = entry->body;

	entry->length = length;
	entry->channel_hash = herald_hash(channel, channel_length, 0);
	entry->channel_length = channel_length;
	entry->body_length = HERALD_BODY_PID + channel_length + 1 + payload_length + 1;

	memcpy(body, &pid, HERALD_BODY_PID);
	body += HERALD_BODY_PID;
	memcpy(body, channel, channel_length);
	body += channel_length;
	*body++ = '\0';
	memcpy(body, payload, payload_length);
	body += payload_length;

	/* The NUL, and what is left up to the next entry. */
	memset(body, 0, (char *) entry + length - body);
}

static uint32
hash_entry(const HeraldEntry *entry)
{
	return herald_hash(herald_entry_payload(entry),
					   entry->body_length - HERALD_BODY_PID - entry->channel_length - 2,
					   entry->channel_hash);
}

static bool
is_duplicate(const HeraldEntry *entry, uint32 hash)
{
	if (pending.places)
	{
		for (uint32 i = hash & pending.places_mask; pending.places[i].entry != 0;
			 i = (i + 1) & pending.places_mask)
		{
			if (pending.places[i].hash == hash &&
				same(entry, entry_at((uint64) (pending.places[i].entry - 1) * HERALD_ALIGN)))
				return true;
		}
		return false;
	}

	for (const HeraldEntry *other = herald_pending_first(); other;
		 other = herald_pending_next(other))
	{
		if (same(entry, other))
			return true;
	}
	return false;
}

static bool
same(const HeraldEntry *a, const HeraldEntry *b)
{
	return a->channel_hash == b->channel_hash &&
		a->channel_length == b->channel_length &&
		a->body_length == b->body_length &&
		memcmp(a->body, b->body, a->body_length) == 0;
}

/* Build the hash, or double it, so that one more entry leaves it half empty. */
static void
hash_make_room(void)
{
	HashPlace  *old = pending.places;
	uint64		places;

	if (pending.places && (uint64) (pending.count + 1) * 2 <= (uint64) pending.places_mask + 1)
		return;

	places = pending.places ? ((uint64) pending.places_mask + 1) * 2 : (uint64) HASH_FROM_COUNT * 4;
	while (places < (uint64) (pending.count + 1) * 2)
		places *= 2;

	/* If this fails the old hash is still whole. */
	pending.places = MemoryContextAllocExtended(TopMemoryContext, places * sizeof(HashPlace),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	pending.places_mask = places - 1;
	if (old)
		pfree(old);
	for (const HeraldEntry *entry = herald_pending_first(); entry;
		 entry = herald_pending_next(entry))
		hash_insert(entry, hash_entry(entry));
}

static void
hash_insert(const HeraldEntry *entry, uint32 hash)
{
	uint32		i = hash & pending.places_mask;

	while (pending.places[i].entry != 0)
		i = (i + 1) & pending.places_mask;
	pending.places[i].entry = ((const char *) entry - pending.arena) / HERALD_ALIGN + 1;
	pending.places[i].hash = hash;
}

/*
 * Remove the entries from this offset on: all that were inserted after those
 * that remain.  Each is found by its offset, not by the empty place where a
 * search would end, because we leave empty places as we go.
 */
static void
hash_remove_from(uint64 start)
{
	for (uint64 at = start; at < pending.used; at += entry_at(at)->length)
	{
		uint32		id = at / HERALD_ALIGN + 1;
		uint32		i = hash_entry(entry_at(at)) & pending.places_mask;

		while (pending.places[i].entry != id)
			i = (i + 1) & pending.places_mask;
		pending.places[i].entry = 0;
	}
}

static HeraldEntry *
entry_at(uint64 offset)
{
	return (HeraldEntry *) (pending.arena + offset);
}
