/*-------------------------------------------------------------------------
 *
 * large_transaction.c
 *	  The file for pending notifications that do not fit into a segment.
 *
 * A transaction's entries stay in memory as long as they fit into a segment of the queue.
 * When there are more, pending.c writes them to a file and continues with an empty arena.  At
 * the commit the queue gets a reference to the file, with the channels for the dispatcher;
 * listeners read the entries from the file.
 *
 * The channels are those of all entries that have ever been written, including subtransactions
 * that were rolled back later: waking a listener unnecessarily does no harm.  herald.channels
 * also counts all of these entries.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/entry.h"
#include "base/shared.h"
#include "core/stop_point.h"
#include "notify/sender/large_transaction.h"
#include "notify/storage/files.h"
#include "notify/storage/large_reader.h"
#include "notify/storage/large_writer.h"
#include "notify/storage/spill.h"

/* Bytes that are read at a time; more for a larger entry. */
#define CACHE_SIZE		((uint64) 64 * 1024)

typedef struct Channel
{
	char		name[NAMEDATALEN];	/* the key */
	uint32		notifications;	/* number ever written */
} Channel;

static struct
{
	File		file;			/* 0: none */
	uint64		number;
	uint64		size;			/* bytes counted for the file: the largest
								 * offset ever written */
	bool		is_placed;		/* the file belongs to the queue */

	/* In TopMemoryContext, while there is a file. */
	HTAB	   *channels;		/* NULL: too many channels, so all listeners
								 * are marked */
	char	   *reference;
	uint64		reference_length;
	uint32		reference_count;
	HeraldChannelSets sets;		/* sets of its channels */
	char	   *cache;
	uint64		cache_size;
	uint64		cached_from;
	uint64		cached_to;
}			overflow;

static void begin(void);
static void note_channels(const char *entries, uint64 length);
static void write_bytes(const char *bytes, uint64 length, uint64 offset);
static bool read_bytes(char *bytes, uint64 length, uint64 offset);
static void make_reference(uint64 length);
static HeraldEntry *reference_end(void);
static void add_to_reference(uint64 length);


void
herald_large_transaction_write(uint64 offset, const char *entries, uint64 length, bool is_last)
{
	uint64		end = offset + length;

	if (overflow.number == 0)
		begin();
	overflow.cached_to = 0;
	HERALD_STOP_POINT("large-transaction-write");
	note_channels(entries, length);
	if (end > overflow.size)
	{
		herald_large_writer_grow(overflow.number, end - overflow.size,
								 is_last && length <= herald_queue_batch_max(herald_queue));
		overflow.size = end;
	}
	write_bytes(entries, length, offset);
	HERALD_STOP_POINT("large-transaction-written");
}

const HeraldEntry *
herald_large_transaction_read(uint64 offset, uint64 end)
{
	uint64		needed = sizeof(HeraldEntry);

	for (;;)
	{
		const HeraldEntry *entry = (const HeraldEntry *) (overflow.cache + (offset - overflow.cached_from));
		uint64		size;

		if (offset >= overflow.cached_from && offset + needed <= overflow.cached_to)
		{
			/* The entry comes from a file, so check it. */
			if (entry->length < sizeof(HeraldEntry) || entry->length > end - offset)
				return NULL;
			if (offset + entry->length <= overflow.cached_to)
				return herald_entry_is_valid(entry, end - offset) ? entry : NULL;
			needed = entry->length;
		}

		size = Max(CACHE_SIZE, needed);
		if (size > overflow.cache_size)
		{
			if (overflow.cache)
				pfree(overflow.cache);
			overflow.cache_size = 0;
			overflow.cache = MemoryContextAllocExtended(TopMemoryContext, size,
														MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
			if (overflow.cache == NULL)
				return NULL;
			overflow.cache_size = size;
		}
		overflow.cached_from = offset;
		overflow.cached_to = 0;
		size = Min(size, end - offset);
		if (size < needed || !read_bytes(overflow.cache, size, offset))
			return NULL;
		overflow.cached_to = offset + size;
	}
}

bool
herald_large_transaction_fetch(char *to, uint64 length)
{
	return length == 0 || read_bytes(to, length, 0);
}

void
herald_large_transaction_publish(uint64 length)
{
	/* Entries at the end that were rolled back need no room. */
	if (overflow.size > length && herald_files_truncate(overflow.file, length))
		overflow.size = length;
	herald_large_writer_complete(overflow.number, overflow.size);
	HERALD_STOP_POINT("large-transaction-complete");
	FileClose(overflow.file);
	overflow.file = 0;
	make_reference(length);
	HERALD_STOP_POINT("large-transaction-referenced");
}

const char *
herald_large_transaction_reference(uint64 *length, uint32 *count)
{
	*length = overflow.reference_length;
	*count = overflow.reference_count;
	return overflow.reference;
}

void
herald_large_transaction_place(HeraldPosition position)
{
	herald_large_writer_place(overflow.number, position, overflow.sets);
	overflow.is_placed = true;
}

void
herald_large_transaction_release(bool committed)
{
	if (overflow.number == 0)
		return;

	if (overflow.file > 0)
		FileClose(overflow.file);
	overflow.file = 0;
	if (!committed || !overflow.is_placed)
	{
		herald_large_writer_forget(overflow.number);
		herald_large_transaction_end();
	}
}

void
herald_large_transaction_end(void)
{
	if (overflow.number == 0)
		return;

	if (overflow.channels)
		hash_destroy(overflow.channels);
	if (overflow.reference)
		pfree(overflow.reference);
	if (overflow.cache)
		pfree(overflow.cache);
	memset(&overflow, 0, sizeof(overflow));
}

static void
begin(void)
{
	HASHCTL		control = {
		.keysize = NAMEDATALEN,
		.entrysize = sizeof(Channel),
		.hcxt = TopMemoryContext,
	};
	ResourceOwner caller = CurrentResourceOwner;
	MemoryContext context = CurrentMemoryContext;

	if (overflow.channels == NULL)
		overflow.channels = hash_create("pg_herald channels of a transaction", 64, &control,
										HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);

	/* The file outlives the subtransaction that needs it first. */
	PG_TRY();
	{
		CurrentResourceOwner = TopTransactionResourceOwner;
		overflow.file = herald_large_writer_create(&overflow.number);
		CurrentResourceOwner = caller;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* The release may log errors of its own. */
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		CurrentResourceOwner = caller;
		herald_large_transaction_release(false);
		ReThrowError(error);
	}
	PG_END_TRY();
}

static void
note_channels(const char *entries, uint64 length)
{
	uint64		most = herald_queue_batch_max(herald_queue) / 2 /
		herald_entry_length(NAMEDATALEN, 0);
	const HeraldEntry *last = NULL;
	Channel    *channel = NULL;

	for (uint64 at = 0; at < length && overflow.channels;)
	{
		const HeraldEntry *entry = (const HeraldEntry *) (entries + at);

		if (last == NULL || last->channel_hash != entry->channel_hash ||
			strcmp(herald_entry_channel(last), herald_entry_channel(entry)) != 0)
		{
			bool		found;

			channel = hash_search(overflow.channels, herald_entry_channel(entry), HASH_ENTER, &found);
			if (!found)
				channel->notifications = 0;
		}
		if (channel->notifications < PG_UINT32_MAX)
			channel->notifications++;
		last = entry;
		at += entry->length;

		if (hash_get_num_entries(overflow.channels) > most)
		{
			hash_destroy(overflow.channels);
			overflow.channels = NULL;
		}
	}
}

/* When the disk is full, give up the oldest data that laggards have not read. */
static void
write_bytes(const char *bytes, uint64 length, uint64 offset)
{
	uint32		deleted = herald_files_deleted();

	while (!herald_files_write(overflow.file, bytes, length, offset, true))
	{
		/* Giving up data helps against no other error. */
		if ((errno != ENOSPC && errno != EDQUOT) || !herald_spill_free_disk(&deleted))
			ereport(ERROR,
					(errcode(ERRCODE_DISK_FULL),
					 errmsg("could not write the notifications of this transaction to a temporary file"),
					 errdetail("They do not fit into memory. The server log says why the file could not be written."),
					 errhint("Free disk space, or send fewer notifications in one transaction.")));
		CHECK_FOR_INTERRUPTS();
	}
}

/* After the file has been handed to the queue, it is no longer open here. */
static bool
read_bytes(char *bytes, uint64 length, uint64 offset)
{
	return overflow.file > 0 ? herald_files_read(overflow.file, bytes, length, offset) :
		herald_large_reader_read(overflow.number, offset, length, bytes);
}

/* Entries for the channels or for all listeners, then one for the file. */
static void
make_reference(uint64 length)
{
	uint64		channels = overflow.channels ? hash_get_num_entries(overflow.channels) : 1;
	HASH_SEQ_STATUS scan;
	Channel    *channel;

	overflow.reference = MemoryContextAllocHuge(TopMemoryContext,
												sizeof(HeraldEntry) + sizeof(HeraldFileReference) +
												channels * herald_entry_length(NAMEDATALEN, 0));
	if (overflow.channels == NULL)
	{
		overflow.sets = HERALD_ALL_CHANNEL_SETS;
		add_to_reference(herald_entry_write_all_listeners(reference_end()));
	}
	else
	{
		hash_seq_init(&scan, overflow.channels);
		while ((channel = hash_seq_search(&scan)) != NULL)
		{
			HeraldEntry *entry = reference_end();

			add_to_reference(herald_entry_write_channel(entry, channel->name, channel->notifications));
			overflow.sets |= herald_channel_set(entry->channel_hash);
		}
	}
	add_to_reference(herald_entry_write_file(reference_end(), overflow.number, length));
}

static HeraldEntry *
reference_end(void)
{
	return (HeraldEntry *) (overflow.reference + overflow.reference_length);
}

static void
add_to_reference(uint64 length)
{
	overflow.reference_length += length;
	overflow.reference_count++;
}
