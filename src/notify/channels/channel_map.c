/*-------------------------------------------------------------------------
 *
 * channel_map.c
 *	  Which backends listen to which channel.
 *
 * The server's dshash, keyed by database and channel, in a DSA area of fixed size that is part
 * of the main shared memory.  The size is fixed because a dispatcher looks channels up inside
 * a commit, where nothing may fail: so no segment has to be attached first.  Memory can run
 * out, but only for a LISTEN, at a point where an error is possible.
 *
 * Most channels have few listeners.  Five fit into the entry itself; more are in a list of blocks,
 * all but the last one full.  A block has the size of an entry: dsa keeps memory for one size, and
 * memory of another size cannot use it.
 *
 * Each byte is counted for one listener (quota.c): the entry for the channel's first one, a block
 * for the first one in it.  When that one leaves, the last one takes its place, and counts for it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/dshash.h"
#include "storage/ipc.h"
#include "utils/dsa.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/channels/channel_map.h"

#define SLOTS_IN_ENTRY	5
#define SLOTS_IN_BLOCK	((BYTES_OF_ITEM - sizeof(dsa_pointer)) / sizeof(uint32))

/*
 * Overhead in the channel memory: dsa uses 64 kB at a time for each size class of allocations: its
 * own data, dshash's data, small arrays of buckets (1, 2, 4 and 8 kB), and one more.
 */
#define BYTES_FIXED		((Size) 7 * 64 * 1024)

/* The size of an entry with dshash's link and hash before it is a size class of dsa. */
#define BYTES_OF_LINK	16
#define BYTES_OF_ITEM	160

/*
 * dshash doubles its array of buckets when one of its partitions is 3/4 full: then all
 * partitions are at least about half full.  It needs the new array and the old one at the same
 * time: three pointers for each half a channel.  Large tables need less, and the rest is
 * enough for dsa's page map.
 */
#define BYTES_OF_BUCKETS	48

typedef struct HeraldChannel
{
	HeraldChannelKey key;
	uint32		count;			/* listeners */
	uint32		slots[SLOTS_IN_ENTRY];	/* of the first ones */
	dsa_pointer last_block;		/* of the others */
	HeraldPosition marked_to;	/* end of the stretch in which the listeners
								 * were last marked */
	HeraldChannelCounters counters;
} Channel;

StaticAssertDecl(MAXALIGN(sizeof(Channel)) + BYTES_OF_LINK == BYTES_OF_ITEM, "no byte is lost");

/* Further listeners. */
typedef struct Block
{
	dsa_pointer before;			/* the block before it */
	uint32		slots[SLOTS_IN_BLOCK];
} Block;

StaticAssertDecl(sizeof(Block) == BYTES_OF_ITEM, "entries and blocks use the same memory");

/* The listeners from number `first` on, as far as they are in the entry or in one block. */
typedef struct Part
{
	uint32	   *slots;
	uint32		first;			/* from 0 */
	uint32		count;
	dsa_pointer before;
} Part;

static dsa_area *area;
static dshash_table *channels;

static dshash_parameters table_parameters(void);
static int	compare_keys(const void *a, const void *b, size_t size, void *arg);
static dshash_hash hash_key(const void *key, size_t size, void *arg);
static void count_sent(HeraldChannelCounters *counters, uint64 notifications, TimestampTz last);
static void make_key(HeraldChannelKey *key, Oid database, const char *channel, uint32 channel_hash);
static Part last_part(Channel *channel);
static bool go_back(Channel *channel, Part *part);
static Part part_that_ends(Channel *channel, uint32 end, dsa_pointer block);
static bool is_first_of_block(uint32 number);
static Size bytes_for(uint32 number);
static void charge(uint32 slot, Size more, Size less);
static Channel *find_or_insert(const HeraldChannelKey *key, bool *found);
static bool append(Channel *channel, uint32 slot);
static void take_out(Channel *channel, uint32 *place, uint32 number);
static void explain_out_of_memory(void *arg);
herald_noreturn static void report_out_of_memory(void);


Size
herald_channels_memory_size(void)
{
	return (Size) herald_channel_memory_kb * 1024;
}

void
herald_channels_create(void)
{
	dshash_parameters parameters = table_parameters();
	dshash_table *table;
	dsa_area   *created;

	created = dsa_create_in_place(herald_channel_area, herald_channels_memory_size(),
								  herald_control->area_tranche, NULL);
	dsa_pin(created);

	/* The area must never get a second segment. */
	dsa_set_size_limit(created, herald_channels_memory_size());

	table = dshash_create(created, &parameters, NULL);
	herald_control->channels = dshash_get_hash_table_handle(table);
	dshash_detach(table);
	dsa_detach(created);
}

void
herald_channels_attach(void)
{
	dshash_parameters parameters = table_parameters();
	MemoryContext oldcontext;

	if (channels != NULL)
		return;

	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	if (area == NULL)
	{
		area = dsa_attach_in_place(herald_channel_area, NULL);
		on_shmem_exit(dsa_on_shmem_exit_release_in_place, PointerGetDatum(herald_channel_area));
		dsa_pin_mapping(area);
	}
	channels = dshash_attach(area, &parameters, herald_control->channels, NULL);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * dshash does not move entries, and the area has only one segment, so the counters keep their
 * address.
 */
HeraldChannelCounters *
herald_channels_add(Oid database, const char *channel, uint32 channel_hash, uint32 slot)
{
	TimestampTz now = GetCurrentTimestamp();
	ErrorContextCallback context = {.callback = explain_out_of_memory};
	HeraldChannelKey key;
	Channel    *entry;
	bool		found;

	make_key(&key, database, channel, channel_hash);

	/* dshash reports only that a request failed; add a detail and a hint. */
	context.previous = error_context_stack;
	error_context_stack = &context;
	entry = find_or_insert(&key, &found);
	error_context_stack = context.previous;

	if (!found)
	{
		entry->count = 0;
		entry->last_block = InvalidDsaPointer;
		entry->marked_to = 0;
		atomic_init(&entry->counters.sent, 0);
		atomic_init(&entry->counters.delivered, 0);
		atomic_init(&entry->counters.last_sent, 0);
		atomic_init(&entry->counters.since, now);
	}
	if (!append(entry, slot))
	{
		dshash_release_lock(channels, entry);
		report_out_of_memory();
	}
	dshash_release_lock(channels, entry);
	return &entry->counters;
}

void
herald_channels_remove(Oid database, const char *channel, uint32 channel_hash, uint32 slot)
{
	HeraldChannelKey key;
	Channel    *entry;
	Part		part;
	uint32		i;

	make_key(&key, database, channel, channel_hash);
	entry = dshash_find(channels, &key, true);
	if (entry == NULL)
		return;

	part = last_part(entry);
	do
	{
		for (i = 0; i < part.count && part.slots[i] != slot; i++)
			;
	} while (i == part.count && go_back(entry, &part));
	if (i < part.count)
		take_out(entry, &part.slots[i], part.first + i);

	if (entry->count > 0)
		dshash_release_lock(channels, entry);
	else
		dshash_delete_entry(channels, entry);
}

Size
herald_channels_room(void)
{
	return herald_channels_memory_size() - BYTES_FIXED;
}

Size
herald_channels_bytes_max(void)
{
	return BYTES_OF_ITEM + BYTES_OF_BUCKETS;
}

void
herald_channels_key(HeraldChannelKey *key, Oid database, const HeraldEntry *entry)
{
	make_key(key, database, herald_entry_channel(entry), entry->channel_hash);
}

uint32
herald_channels_mark(const HeraldChannelKey *key, const HeraldBatchHeader *header, HeraldPosition stretch,
					 uint64 notifications, HeraldChannelMarks *marks)
{
	Channel    *channel = dshash_find(channels, key, false);
	uint32		listeners;

	if (channel == NULL)
		return 0;

	listeners = channel->count;
	if (channel->marked_to != stretch)
	{
		Part		part = last_part(channel);

		do
			marks->entered += herald_wakeup_mark_all(herald_wakeup, part.slots, part.count,
													 herald_word_position(header->word));
		while (go_back(channel, &part));
		marks->looked_at += listeners;
		channel->marked_to = stretch;
	}
	count_sent(&channel->counters, notifications, header->commit_time);
	dshash_release_lock(channels, channel);
	return listeners;
}

void
herald_channels_count(const HeraldChannelKey *key, uint64 notifications, TimestampTz last_sent)
{
	Channel    *channel = dshash_find(channels, key, false);

	if (channel == NULL)
		return;
	count_sent(&channel->counters, notifications, last_sent);
	dshash_release_lock(channels, channel);
}

void
herald_channels_scan(HeraldChannelVisitor visitor, void *arg)
{
	dshash_seq_status scan;
	Channel    *entry;

	/*
	 * One scan at a time: otherwise a LISTEN could wait for several scans
	 * that read the same partition.
	 */
	LWLockAcquire(herald_control->scan_lock, LW_EXCLUSIVE);
	dshash_seq_init(&scan, channels, false);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		HeraldChannelInfo info = {
			.database = entry->key.database,
			.name = entry->key.name,
			.count = entry->count,
			.entry = entry,
			.counters = &entry->counters,
		};

		if (!visitor(&info, arg))
			break;
	}
	dshash_seq_term(&scan);
	LWLockRelease(herald_control->scan_lock);
}

uint32
herald_channels_count_listeners(const HeraldChannelInfo *channel, bool (*counts) (uint32 slot, void *arg), void *arg)
{
	Part		part = last_part(channel->entry);
	uint32		count = 0;

	do
		for (uint32 i = 0; i < part.count; i++)
			count += counts(part.slots[i], arg);
	while (go_back(channel->entry, &part));
	return count;
}

static dshash_parameters
table_parameters(void)
{
	return (dshash_parameters) HERALD_DSHASH_PARAMETERS(sizeof(HeraldChannelKey), sizeof(Channel),
														compare_keys, hash_key,
														herald_control->channels_tranche);
}

static int
compare_keys(const void *a, const void *b, size_t size, void *arg)
{
	const HeraldChannelKey *left = a;
	const HeraldChannelKey *right = b;

	if (left->database != right->database)
		return left->database < right->database ? -1 : 1;
	return strcmp(left->name, right->name);
}

static dshash_hash
hash_key(const void *key, size_t size, void *arg)
{
	const HeraldChannelKey *channel = key;

	return hash_combine(channel->channel_hash, murmurhash32(channel->database));
}

void
herald_channels_count_own(HeraldChannelCounters *counters)
{
	count_sent(counters, 1, GetCurrentTimestamp());
	atomic_fetch_add_explicit(&counters->delivered, 1, memory_order_relaxed);
}

/*
 * The previous dispatcher may add its repeated notifications later, so keep the latest time.
 */
static void
count_sent(HeraldChannelCounters *counters, uint64 notifications, TimestampTz last)
{
	atomic_fetch_add_explicit(&counters->sent, notifications, memory_order_relaxed);
	if (last > atomic_load_explicit(&counters->last_sent, memory_order_relaxed))
		atomic_store_explicit(&counters->last_sent, last, memory_order_relaxed);
}

static void
make_key(HeraldChannelKey *key, Oid database, const char *channel, uint32 channel_hash)
{
	key->database = database;
	key->channel_hash = channel_hash;
	strncpy(key->name, channel, NAMEDATALEN);
}

static Part
last_part(Channel *channel)
{
	return part_that_ends(channel, channel->count, channel->last_block);
}

/* To the part before it; false: there is none. */
static bool
go_back(Channel *channel, Part *part)
{
	if (part->first == 0)
		return false;
	*part = part_that_ends(channel, part->first, part->before);
	return true;
}

/* Before this number; block: if it is one. */
static Part
part_that_ends(Channel *channel, uint32 end, dsa_pointer block)
{
	Part		part = {.slots = channel->slots,.count = end};
	Block	   *address;

	if (end <= SLOTS_IN_ENTRY)
		return part;
	address = dsa_get_address(area, block);
	part.first = end - 1 - (end - 1 - SLOTS_IN_ENTRY) % SLOTS_IN_BLOCK;
	part.count = end - part.first;
	part.slots = address->slots;
	part.before = address->before;
	return part;
}

static bool
is_first_of_block(uint32 number)
{
	return number >= SLOTS_IN_ENTRY && (number - SLOTS_IN_ENTRY) % SLOTS_IN_BLOCK == 0;
}

/* What the listener with this number counts for. */
static Size
bytes_for(uint32 number)
{
	if (number == 0)
		return BYTES_OF_ITEM + BYTES_OF_BUCKETS;
	return is_first_of_block(number) ? BYTES_OF_ITEM : 0;
}

/* [C2] See quota.c. */
static void
charge(uint32 slot, Size more, Size less)
{
	if (more != less)
		atomic_fetch_add_explicit(&herald_slots[slot].channel_bytes, more - less, memory_order_seq_cst);
}

/*
 * As dshash_find_or_insert(), but an error leaves no lock held.
 *
 * dshash throws "out of memory" with the partition locked, or with all of them when it cannot
 * get a larger array of buckets, and leaves their release to the abort of the transaction.
 * The server sends the error before that, and waits while the client does not read; a
 * dispatcher, and with it every COMMIT that notifies, would wait for the same client.  The
 * table is unchanged: dshash allocates before it changes anything.  dsa has released its own
 * locks.
 *
 * We cannot access dshash's locks, so release all LWLocks of this process.  Before a commit
 * the server holds none.  If another module holds one (and so keeps interrupts off until the
 * end of the transaction), this does no harm: the error ends the transaction, and
 * AbortTransaction() begins with the same call.
 */
static Channel *
find_or_insert(const HeraldChannelKey *key, bool *found)
{
	Channel    *entry;

	PG_TRY();
	{
		entry = dshash_find_or_insert(channels, key, found);
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		PG_RE_THROW();
	}
	PG_END_TRY();
	return entry;
}

/* False: there is no memory. */
static bool
append(Channel *channel, uint32 slot)
{
	Part		part;

	if (is_first_of_block(channel->count))
	{
		dsa_pointer block = dsa_allocate_extended(area, sizeof(Block), DSA_ALLOC_NO_OOM);

		if (!DsaPointerIsValid(block))
			return false;
		((Block *) dsa_get_address(area, block))->before = channel->last_block;
		channel->last_block = block;
	}
	charge(slot, bytes_for(channel->count), 0);
	channel->count++;
	part = last_part(channel);
	part.slots[part.count - 1] = slot;
	return true;
}

/* The last listener takes the place of the one that leaves, which has this number. */
static void
take_out(Channel *channel, uint32 *place, uint32 number)
{
	uint32		leaves = *place;
	Part		part = last_part(channel);
	uint32		last = part.slots[part.count - 1];

	*place = last;
	channel->count--;
	charge(last, bytes_for(number), bytes_for(channel->count));
	charge(leaves, 0, bytes_for(number));
	if (is_first_of_block(channel->count))
	{
		dsa_free(area, channel->last_block);
		channel->last_block = part.before;
	}
}

#define OUT_OF_MEMORY_DETAIL \
	errdetail("The channels of all listeners fill herald.channel_memory (%zu kB).", \
			  herald_channels_memory_size() / 1024)
#define OUT_OF_MEMORY_HINT \
	errhint("Increase herald.channel_memory, or listen to fewer channels.")

static void
explain_out_of_memory(void *arg)
{
	if (geterrcode() == ERRCODE_OUT_OF_MEMORY)
	{
		OUT_OF_MEMORY_DETAIL;
		OUT_OF_MEMORY_HINT;
	}
}

static void
report_out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 OUT_OF_MEMORY_DETAIL,
			 OUT_OF_MEMORY_HINT));
}
