/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  The current transaction's notifications, which wait for its commit.
 *
 * They are kept in one arena, already in the form that they have in the queue,
 * so that publishing them is one copy.
 *
 * Rolling a subtransaction back truncates the arena to where it began
 * (base/subtransaction_levels.h).  This also works for finding duplicates.  An entry that an
 * enclosing level has added need not be added again, since a level cannot outlive the levels
 * that enclose it.  One hash of all entries serves all levels; it is probed linearly.  A rollback
 * removes the entries that were inserted last, so their places can simply be emptied: they did
 * not displace any earlier entry.  (Growing the hash inserts in the arena's order again.)  To
 * find their places these entries are read again, perhaps from a file.  So this is done only when
 * the next entry is added: usually there is none, since the whole transaction is rolled back.
 *
 * Entries that do not fit into a segment of the queue are written to a file
 * (large_transaction.c): the file holds the bytes before `written`, the arena those after it.
 * The hash stays in memory: 16 to 32 bytes for each entry.
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
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/entry.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/subtransaction_levels.h"
#include "core/queue.h"
#include "core/stop_point.h"
#include "notify/sender/large_transaction.h"
#include "notify/sender/pending.h"
#include "notify/storage/large_writer.h"

/* From this many entries on, a hash finds duplicates. */
#define HASH_FROM_COUNT			16

/* The arena's initial size in bytes; and the maximum that is kept between transactions. */
#define ARENA_SIZE_MIN			1024
#define ARENA_SIZE_KEPT			((uint64) 64 * 1024)

/* A place of the hash: the entry's offset / 8, plus 1; 0: empty. */
typedef struct HashSlot
{
	uint32		entry;
	uint32		hash;			/* of channel and payload */
} HashSlot;

/* Offsets of entries, in units of 8 bytes, must fit into HashSlot. */
#define LENGTH_MAX				((uint64) (PG_UINT32_MAX - 1) * HERALD_ALIGN)

static struct
{
	char	   *arena;			/* in TopMemoryContext */
	uint64		size;			/* bytes allocated */
	uint64		used;			/* bytes of all entries */
	uint64		removed_to;		/* entries from `used` up to here were
								 * removed, but are still in the hash */
	uint64		written;		/* bytes of the entries in the file, which
								 * precede the arena's */
	bool		has_file;
	bool		is_damaged;		/* the file cannot be read: the transaction
								 * fails */
	uint32		count;			/* entries */
	uint64		longest_payload;

	HashSlot   *places;			/* NULL: no hash (yet) */
	uint32		places_mask;	/* number of places, a power of two, minus 1 */

	HeraldLevels levels;		/* in bytes used */
	HeraldLevels count_levels;	/* in entries */

	uint64		handed;			/* bytes of the entries that were handed over */
	HeraldLevels handed_levels; /* in bytes handed over */
}			pending;

static void visit_from(uint64 offset, HeraldEntryVisitor visit);
static uint64 in_memory_max(void);
static bool add(const char *channel, size_t channel_length, const char *payload, size_t payload_length,
				bool for_queue, bool compares);
static HeraldEntry *append_room(uint64 length, bool may_write);
static uint32 hash_entry(const HeraldEntry *entry);
static bool is_duplicate(const HeraldEntry *entry, uint32 hash);
static bool is_same_at(uint64 offset, const HeraldEntry *entry);
static bool same(const HeraldEntry *a, const HeraldEntry *b);
static void hash_make_room(void);
static void hash_insert(uint64 offset, uint32 hash);
static void forget_removed(void);
static void drop_hash(void);
static void hash_remove(const HeraldEntry *entry, uint64 offset);
static const HeraldEntry *entry_at(uint64 offset);
static void write_out(bool is_last);
herald_noreturn static void report_damaged(void);
herald_noreturn static void report_too_large(void);


bool
herald_pending_add(const char *channel, size_t channel_length,
				   const char *payload, size_t payload_length, bool for_queue)
{
	return add(channel, channel_length, payload, payload_length, for_queue, true);
}

void
herald_pending_add_unique(const char *channel, size_t channel_length,
						  const char *payload, size_t payload_length)
{
	(void) add(channel, channel_length, payload, payload_length, true, false);
}

static bool
add(const char *channel, size_t channel_length, const char *payload, size_t payload_length,
	bool for_queue, bool compares)
{
	uint64		length = herald_entry_length(channel_length, payload_length);
	HeraldEntry *entry;
	uint32		hash;

	forget_removed();
	CHECK_FOR_INTERRUPTS();
	if (pending.is_damaged)
		report_damaged();
	if (pending.used + length > Min(LENGTH_MAX, for_queue ? herald_large_writer_bytes_max() : LENGTH_MAX) &&
		pending.used + length > in_memory_max())
		report_too_large();
	entry = append_room(length, for_queue);

	/* All steps that may fail come before the entry counts. */
	if (compares && pending.count + 1 >= HASH_FROM_COUNT)
		hash_make_room();
	HERALD_STOP_POINT("pending-hash");
	herald_levels_note(&pending.count_levels, pending.count);
	herald_levels_note(&pending.levels, pending.used);
	HERALD_STOP_POINT("pending-level");

	herald_entry_write(entry, channel, channel_length, payload, payload_length);
	hash = pending.places ? hash_entry(entry) : 0;
	if (compares && is_duplicate(entry, hash))
		return false;

	if (pending.places)
		hash_insert(pending.used, hash);
	pending.used += length;
	pending.count++;
	pending.longest_payload = Max(pending.longest_payload, payload_length);
	return true;
}

void
herald_pending_subcommit(void)
{
	herald_levels_subcommit(&pending.levels);
	herald_levels_subcommit(&pending.count_levels);
	herald_levels_subcommit(&pending.handed_levels);
}

void
herald_pending_subabort(void)
{
	uint64		start = herald_levels_subabort(&pending.levels, pending.used);
	uint64		handed = herald_levels_subabort(&pending.handed_levels, pending.handed);

	if (start < pending.used)
		pending.removed_to = Max(pending.removed_to, pending.used);
	pending.used = start;
	pending.count = (uint32) herald_levels_subabort(&pending.count_levels, pending.count);
	pending.handed = Min(handed, start);
}

void
herald_pending_reset(void)
{
	pending.used = pending.removed_to = pending.written = pending.handed = 0;
	pending.count = 0;
	pending.longest_payload = 0;
	pending.has_file = pending.is_damaged = false;
	herald_levels_reset(&pending.levels);
	herald_levels_reset(&pending.count_levels);
	herald_levels_reset(&pending.handed_levels);
	if (pending.places)
		drop_hash();
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

uint64
herald_pending_longest_payload(void)
{
	return pending.longest_payload;
}

void
herald_pending_visit(HeraldEntryVisitor visit)
{
	visit_from(0, visit);
}

void
herald_pending_hand_over(HeraldEntryVisitor visit)
{
	if (pending.handed == pending.used)
		return;

	/*
	 * If this fails, the entries handed over so far are rolled back with this
	 * level.
	 */
	herald_levels_note(&pending.handed_levels, pending.handed);
	visit_from(pending.handed, visit);
	pending.handed = pending.used;
}

bool
herald_pending_has_file(void)
{
	return pending.has_file || pending.used > in_memory_max();
}

/*
 * A file belongs to the queue until all listeners have read it, and the number of files is
 * limited, so avoid a file if possible.
 */
void
herald_pending_return_to_memory(void)
{
	uint64		in_arena;
	char	   *arena;

	if (!pending.has_file || pending.used > in_memory_max())
		return;

	forget_removed();
	in_arena = pending.used - pending.written;
	arena = MemoryContextAllocHuge(TopMemoryContext, Max(pending.used, ARENA_SIZE_MIN));
	if (!herald_large_transaction_fetch(arena, pending.written))
	{
		pfree(arena);
		report_damaged();
	}
	memcpy(arena + pending.written, pending.arena, in_arena);
	pfree(pending.arena);
	pending.arena = arena;
	pending.size = Max(pending.used, ARENA_SIZE_MIN);
	pending.written = 0;
	pending.has_file = false;
	herald_large_transaction_release(false);
}

uint64
herald_pending_complete_file(void)
{
	forget_removed();
	if (pending.is_damaged)
		report_damaged();
	write_out(true);
	return pending.used;
}

static void
visit_from(uint64 offset, HeraldEntryVisitor visit)
{
	while (offset < pending.used)
	{
		const HeraldEntry *entry = entry_at(offset);

		if (entry == NULL)
			report_damaged();
		offset += entry->length;
		visit(entry);
	}
}

/*
 * Maximum bytes of entries that stay in memory: with them, a batch may have an entry about its
 * commit.
 */
static uint64
in_memory_max(void)
{
	return herald_queue_batch_max(herald_queue) - HERALD_COMMIT_LENGTH;
}

/* Make room at the end of the arena for an entry, which does not count yet. */
static HeraldEntry *
append_room(uint64 length, bool may_write)
{
	uint64		needed;

	if (may_write && pending.used > pending.written &&
		pending.used - pending.written + length > in_memory_max())
		write_out(false);

	needed = pending.used - pending.written + length;
	if (needed > pending.size)
	{
		uint64		size = Max(ARENA_SIZE_MIN, pending.size * 2);

		while (size < needed)
			size *= 2;
		HERALD_STOP_POINT("pending-arena");
		if (pending.arena == NULL)
			pending.arena = MemoryContextAllocHuge(TopMemoryContext, size);
		else
			pending.arena = repalloc_huge(pending.arena, size);
		pending.size = size;
	}
	return (HeraldEntry *) (pending.arena + (pending.used - pending.written));
}

static uint32
hash_entry(const HeraldEntry *entry)
{
	return herald_hash(herald_entry_payload(entry),
					   herald_entry_payload_length(entry), entry->channel_hash);
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
				is_same_at((uint64) (pending.places[i].entry - 1) * HERALD_ALIGN, entry))
				return true;
		}
		return false;
	}

	for (uint64 at = 0; at < pending.used;)
	{
		const HeraldEntry *other = entry_at(at);

		if (other == NULL)
			report_damaged();
		if (same(entry, other))
			return true;
		at += other->length;
	}
	return false;
}

static bool
is_same_at(uint64 offset, const HeraldEntry *entry)
{
	const HeraldEntry *other = entry_at(offset);

	if (other == NULL)
		report_damaged();
	return same(entry, other);
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
	HashSlot   *old = pending.places;
	uint64		places;

	if (pending.places && (uint64) (pending.count + 1) * 2 <= (uint64) pending.places_mask + 1)
		return;

	places = pending.places ? ((uint64) pending.places_mask + 1) * 2 : (uint64) HASH_FROM_COUNT * 4;
	while (places < (uint64) (pending.count + 1) * 2)
		places *= 2;

	/* If this fails the old hash is still complete. */
	pending.places = MemoryContextAllocExtended(TopMemoryContext, places * sizeof(HashSlot),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	pending.places_mask = places - 1;
	if (old)
		pfree(old);
	for (uint64 at = 0; at < pending.used;)
	{
		const HeraldEntry *entry = entry_at(at);

		if (entry == NULL)
			report_damaged();
		hash_insert(at, hash_entry(entry));
		at += entry->length;
	}
}

static void
hash_insert(uint64 offset, uint32 hash)
{
	uint32		i = hash & pending.places_mask;

	while (pending.places[i].entry != 0)
		i = (i + 1) & pending.places_mask;
	pending.places[i].entry = offset / HERALD_ALIGN + 1;
	pending.places[i].hash = hash;
}

/*
 * Remove entries that were rolled back from the hash.  If an interrupt is pending, drop the
 * hash instead; it is built again later.
 */
static void
forget_removed(void)
{
	for (uint64 at = pending.used; at < pending.removed_to && pending.places;)
	{
		const HeraldEntry *entry;

		HERALD_HOLD_POINT("pending-forget");
		entry = INTERRUPTS_PENDING_CONDITION() ? NULL : entry_at(at);
		if (entry == NULL)
		{
			drop_hash();
			break;
		}
		hash_remove(entry, at);
		at += entry->length;
	}
	pending.removed_to = 0;
	pending.written = Min(pending.written, pending.used);
}

static void
drop_hash(void)
{
	pfree(pending.places);
	pending.places = NULL;
}

/*
 * Search until the entry's offset is found, past empty places: other removed entries have left
 * empty places.
 */
static void
hash_remove(const HeraldEntry *entry, uint64 offset)
{
	uint32		i = hash_entry(entry) & pending.places_mask;

	while (pending.places[i].entry != offset / HERALD_ALIGN + 1)
		i = (i + 1) & pending.places_mask;
	pending.places[i].entry = 0;
}

/* Valid until the next call.  NULL: the file cannot be read, so the transaction must fail. */
static const HeraldEntry *
entry_at(uint64 offset)
{
	const HeraldEntry *entry;

	if (offset >= pending.written)
		return (const HeraldEntry *) (pending.arena + (offset - pending.written));

	entry = herald_large_transaction_read(offset, pending.written);
	if (entry == NULL)
		pending.is_damaged = true;
	return entry;
}

/* Write the arena to the file. */
static void
write_out(bool is_last)
{
	if (pending.used > pending.written)
		herald_large_transaction_write(pending.written, pending.arena, pending.used - pending.written,
									   is_last);
	pending.has_file = true;
	pending.written = pending.used;
}

static void
report_damaged(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("could not read the notifications of this transaction from its temporary file"),
			 errdetail("The server log says why.")));
}

static void
report_too_large(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many notifications in one transaction"),
			 errdetail("The limit for one transaction is %llu kB: half of herald.max_queue_size (%d kB), or what queue memory leaves of it if that is less.",
					   (unsigned long long) Min(LENGTH_MAX, herald_large_writer_bytes_max()) / 1024,
					   herald_max_queue_size_kb),
			 errhint("Increase herald.max_queue_size, or set herald.enabled to off for this transaction.")));
}
