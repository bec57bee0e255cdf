/*-------------------------------------------------------------------------
 *
 * large_table.c
 *	  The table of large transactions' files.
 *
 * A transaction whose notifications do not fit into a segment writes its entries to a file of
 * its own while it runs, and puts a reference into the queue.  From then on the file belongs to
 * the queue: it is deleted when all listeners have read past the reference, or given up like a
 * segment (retention.c).
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "large_table.h"

#include <string.h>

static HeraldLargeFile *find(HeraldLargeTable *table, uint64_t number);
static HeraldPosition position_of(HeraldLargeFile *file);
static void discard(HeraldLargeTable *table, HeraldLargeFile *file);


void
herald_large_table_init(HeraldLargeTable *table)
{
	memset((void *) table, 0, sizeof(HeraldLargeTable));
}

uint64_t
herald_large_table_enter(HeraldLargeTable *table, uint32_t role)
{
	HeraldLargeFile *file = find(table, 0);
	uint64_t	number;
	int			used;

	if (file == NULL)
		return 0;
	number = ++table->last_number;
	used = (int) (file - table->files) + 1;
	atomic_store(&file->bytes, 0);
	atomic_store(&file->role, role);
	atomic_store(&file->position, HERALD_NOT_PLACED);
	atomic_store(&file->number, number);
	if (atomic_load(&table->used) < used)
		atomic_store(&table->used, used);
	atomic_fetch_add(&table->count, 1);
	return number;
}

bool
herald_large_table_has(HeraldLargeTable *table, uint64_t number)
{
	return find(table, number) != NULL;
}

uint64_t
herald_large_table_size(HeraldLargeTable *table, uint64_t number)
{
	HeraldLargeFile *file = find(table, number);

	return file == NULL ? 0 : atomic_load(&file->bytes);
}

bool
herald_large_table_grow(HeraldLargeTable *table, uint64_t number, uint64_t bytes, uint64_t bytes_max)
{
	HeraldLargeFile *file = find(table, number);
	uint64_t	before = atomic_load(&table->bytes);

	if (file == NULL)
		return false;
	do
	{
		if (bytes_max < bytes || before > bytes_max - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&table->bytes, &before, before + bytes));
	atomic_fetch_add(&file->bytes, bytes);
	return true;
}

bool
herald_large_table_complete(HeraldLargeTable *table, uint64_t number, uint64_t bytes)
{
	HeraldLargeFile *file = find(table, number);

	if (file == NULL)
		return false;
	atomic_fetch_sub(&table->bytes, atomic_load(&file->bytes) - bytes);
	atomic_store(&file->bytes, bytes);
	return true;
}

bool
herald_large_table_place(HeraldLargeTable *table, uint64_t number, HeraldPosition position, uint64_t sets)
{
	HeraldLargeFile *file = find(table, number);

	if (file == NULL)
		return false;
	atomic_store(&file->sets, sets);
	atomic_store(&file->position, position);
	return true;
}

void
herald_large_table_remove_below(HeraldLargeTable *table, HeraldPosition position,
								HeraldPosition removed[HERALD_CHANNEL_SETS],
								void (*remove) (uint64_t number, uint64_t bytes))
{
	for (int i = 0; i < atomic_load(&table->used); i++)
	{
		HeraldLargeFile *file = &table->files[i];
		HeraldPosition at = position_of(file);
		uint64_t	sets = atomic_load(&file->sets);

		if (at >= position)
			continue;
		for (int set = 0; sets != 0; sets >>= 1, set++)
			if ((sets & 1) != 0 && removed[set] < at)
				removed[set] = at;
		remove(atomic_load(&file->number), atomic_load(&file->bytes));
		discard(table, file);
	}
}

HeraldPosition
herald_large_table_oldest(HeraldLargeTable *table)
{
	HeraldPosition oldest = HERALD_NOT_PLACED;

	for (int i = 0; i < atomic_load(&table->used); i++)
	{
		HeraldPosition at = position_of(&table->files[i]);

		if (at < oldest)
			oldest = at;
	}
	return oldest;
}

int
herald_large_table_count(HeraldLargeTable *table)
{
	return atomic_load_explicit(&table->count, memory_order_relaxed);
}

uint64_t
herald_large_table_bytes(HeraldLargeTable *table)
{
	return atomic_load_explicit(&table->bytes, memory_order_relaxed);
}

uint64_t
herald_large_table_bytes_from(HeraldLargeTable *table, HeraldPosition position)
{
	uint64_t	bytes = 0;

	for (int i = 0; i < atomic_load(&table->used); i++)
	{
		HeraldLargeFile *file = &table->files[i];

		if (atomic_load(&file->number) != 0 && atomic_load(&file->position) >= position)
			bytes += atomic_load(&file->bytes);
	}
	return bytes;
}

uint64_t
herald_large_table_bytes_open(HeraldLargeTable *table)
{
	return herald_large_table_bytes_from(table, HERALD_NOT_PLACED);
}

/* An entry that gets another owner meanwhile may count for the wrong role, once. */
uint64_t
herald_large_table_bytes_open_of(HeraldLargeTable *table, uint32_t role)
{
	uint64_t	bytes = 0;

	for (int i = 0; i < atomic_load(&table->used); i++)
	{
		HeraldLargeFile *file = &table->files[i];

		if (atomic_load(&file->number) != 0 && atomic_load(&file->position) == HERALD_NOT_PLACED &&
			atomic_load(&file->role) == role)
			bytes += atomic_load(&file->bytes);
	}
	return bytes;
}

/* An entry that gets another owner meanwhile is left out. */
uint64_t
herald_large_table_bytes_between(HeraldLargeTable *table, HeraldPosition from, HeraldPosition to)
{
	uint64_t	bytes = 0;

	if (herald_large_table_bytes(table) == 0)
		return 0;
	for (int i = 0; i < atomic_load(&table->used); i++)
	{
		HeraldLargeFile *file = &table->files[i];
		uint64_t	number = atomic_load(&file->number);
		HeraldPosition position = atomic_load(&file->position);
		uint64_t	size = atomic_load(&file->bytes);

		if (number != 0 && position >= from && position < to &&
			atomic_load(&file->number) == number)
			bytes += size;
	}
	return bytes;
}

/*
 * The entry with this number, by its owner; or, by the spiller, a free entry, with number 0.
 * NULL: there is none.  An owner's entry exists until its batch is finished, unless memory was
 * damaged.
 */
static HeraldLargeFile *
find(HeraldLargeTable *table, uint64_t number)
{
	for (int i = 0; i < HERALD_LARGE_FILES_MAX; i++)
	{
		if (atomic_load(&table->files[i].number) == number)
			return &table->files[i];
	}
	return NULL;
}

/* By the spiller.  A free entry counts as not placed. */
static HeraldPosition
position_of(HeraldLargeFile *file)
{
	return atomic_load(&file->number) == 0 ? HERALD_NOT_PLACED : atomic_load(&file->position);
}

/* By the spiller. */
static void
discard(HeraldLargeTable *table, HeraldLargeFile *file)
{
	int			used = atomic_load(&table->used);

	atomic_fetch_sub(&table->bytes, atomic_load(&file->bytes));
	atomic_fetch_sub(&table->count, 1);
	atomic_store(&file->number, 0);
	while (used > 0 && atomic_load(&table->files[used - 1].number) == 0)
		used--;
	atomic_store(&table->used, used);
}
