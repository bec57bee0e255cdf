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
 * Most channels have few listeners.  Six fit into the entry itself; more are in an array that
 * is doubled when it is full, and halved when three quarters of it are free: so the number of
 * a role's listeners bounds the memory that they use.
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

#define SLOTS_IN_ENTRY	6

/*
 * Overhead in the channel memory: dsa uses a block of 64 kB for each size class of
 * allocations: its own data, dshash's data, small arrays of buckets (1, 2, 4 and 8 kB), and
 * one more.
 */
#define BYTES_FIXED		(7 * BYTES_OF_BLOCK)

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

/* dsa uses a separate block for each size of the listeners' arrays, up to this size. */
#define BYTES_OF_BLOCK		((Size) 64 * 1024)
#define BYTES_OF_ARRAY_MAX	8192

typedef struct Channel
{
	HeraldChannelKey key;
	uint32		count;
	uint32		capacity;		/* SLOTS_IN_ENTRY: the slots are in the entry */
	union
	{
		uint32		in_entry[SLOTS_IN_ENTRY];
		dsa_pointer array;
	}			slots;
	HeraldPosition marked_to;	/* end of the run in which the listeners were last marked */
	HeraldChannelCounters counters;
} Channel;

StaticAssertDecl(MAXALIGN(sizeof(Channel)) + BYTES_OF_LINK == BYTES_OF_ITEM, "no byte is lost");

static dsa_area *area;
static dshash_table *channels;

static dshash_parameters table_parameters(void);
static int	compare_keys(const void *a, const void *b, size_t size, void *arg);
static dshash_hash hash_key(const void *key, size_t size, void *arg);
static void count_sent(Channel *channel, uint64 notifications, TimestampTz last);
static void make_key(HeraldChannelKey *key, Oid database, const char *channel, uint32 channel_hash);
static uint32 *channel_slots(Channel *channel);
static Channel *find_or_insert(const HeraldChannelKey *key, bool *found);
static bool grow(Channel *channel);
static void shrink(Channel *channel);
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
		entry->capacity = SLOTS_IN_ENTRY;
		entry->marked_to = 0;
		atomic_init(&entry->counters.sent, 0);
		atomic_init(&entry->counters.delivered, 0);
		atomic_init(&entry->counters.last_sent, 0);
		atomic_init(&entry->counters.since, now);
	}
	if (entry->count == entry->capacity && !grow(entry))
	{
		dshash_release_lock(channels, entry);
		report_out_of_memory();
	}
	channel_slots(entry)[entry->count++] = slot;
	dshash_release_lock(channels, entry);
	return &entry->counters;
}

void
herald_channels_remove(Oid database, const char *channel, uint32 channel_hash, uint32 slot)
{
	HeraldChannelKey key;
	Channel    *entry;
	uint32	   *slots;
	uint32		i = 0;

	make_key(&key, database, channel, channel_hash);
	entry = dshash_find(channels, &key, true);
	if (entry == NULL)
		return;

	slots = channel_slots(entry);
	while (i < entry->count && slots[i] != slot)
		i++;
	if (i < entry->count)
		slots[i] = slots[--entry->count];

	if (entry->count > 0)
	{
		shrink(entry);
		dshash_release_lock(channels, entry);
	}
	else
	{
		if (entry->capacity > SLOTS_IN_ENTRY)
			dsa_free(area, entry->slots.array);
		dshash_delete_entry(channels, entry);
	}
}

uint64
herald_channels_max(void)
{
	Size		blocks = 0;

	for (Size listeners = SLOTS_IN_ENTRY;
		 listeners < herald_wakeup->slots && listeners * 2 * sizeof(uint32) <= BYTES_OF_ARRAY_MAX;
		 listeners *= 2)
		blocks++;
	return (herald_channels_memory_size() - BYTES_FIXED - blocks * BYTES_OF_BLOCK) /
		(BYTES_OF_ITEM + BYTES_OF_BUCKETS);
}

void
herald_channels_key(HeraldChannelKey *key, Oid database, const HeraldEntry *entry)
{
	make_key(key, database, herald_entry_channel(entry), entry->channel_hash);
}

uint32
herald_channels_mark(const HeraldChannelKey *key, const HeraldBatchHeader *header, HeraldPosition run,
					 uint64 notifications, HeraldChannelMarks *marks)
{
	Channel    *channel = dshash_find(channels, key, false);
	uint32		listeners;

	if (channel == NULL)
		return 0;

	listeners = channel->count;
	if (channel->marked_to != run)
	{
		marks->entered += herald_wakeup_mark_all(herald_wakeup, channel_slots(channel), listeners,
												 herald_word_position(header->word));
		marks->looked_at += listeners;
		channel->marked_to = run;
	}
	count_sent(channel, notifications, header->commit_time);
	dshash_release_lock(channels, channel);
	return listeners;
}

void
herald_channels_count(const HeraldChannelKey *key, uint64 notifications, TimestampTz last_sent)
{
	Channel    *channel = dshash_find(channels, key, false);

	if (channel == NULL)
		return;
	count_sent(channel, notifications, last_sent);
	dshash_release_lock(channels, channel);
}

void
herald_channels_scan(HeraldChannelVisitor visitor, void *arg)
{
	dshash_seq_status scan;
	Channel    *entry;

	/*
	 * One scan at a time: otherwise a LISTEN could wait for several scans that read the same
	 * partition.
	 */
	LWLockAcquire(herald_control->scan_lock, LW_EXCLUSIVE);
	dshash_seq_init(&scan, channels, false);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		HeraldChannelInfo info = {
			.database = entry->key.database,
			.name = entry->key.name,
			.count = entry->count,
			.slots = channel_slots(entry),
			.counters = &entry->counters,
		};

		if (!visitor(&info, arg))
			break;
	}
	dshash_seq_term(&scan);
	LWLockRelease(herald_control->scan_lock);
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

/*
 * The previous dispatcher may add its repeated notifications later, so keep the latest time.
 */
static void
count_sent(Channel *channel, uint64 notifications, TimestampTz last)
{
	HeraldChannelCounters *counters = &channel->counters;

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

static uint32 *
channel_slots(Channel *channel)
{
	if (channel->capacity == SLOTS_IN_ENTRY)
		return channel->slots.in_entry;
	return dsa_get_address(area, channel->slots.array);
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

/* Double the room for listeners.  False if there is no memory. */
static bool
grow(Channel *channel)
{
	uint32		capacity = channel->capacity * 2;
	dsa_pointer array;

	array = dsa_allocate_extended(area, capacity * sizeof(uint32), DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(array))
		return false;

	memcpy(dsa_get_address(area, array), channel_slots(channel),
		   channel->count * sizeof(uint32));
	if (channel->capacity > SLOTS_IN_ENTRY)
		dsa_free(area, channel->slots.array);
	channel->slots.array = array;
	channel->capacity = capacity;
	return true;
}

/*
 * Free the room of listeners that have left.  If there is no memory for a smaller array, keep
 * the larger one.
 */
static void
shrink(Channel *channel)
{
	uint32		capacity = channel->capacity / 2;
	dsa_pointer old = channel->slots.array;
	dsa_pointer array = InvalidDsaPointer;
	uint32	   *slots;

	if (channel->capacity == SLOTS_IN_ENTRY || channel->count > capacity / 2)
		return;

	if (capacity > SLOTS_IN_ENTRY)
	{
		array = dsa_allocate_extended(area, capacity * sizeof(uint32), DSA_ALLOC_NO_OOM);
		if (!DsaPointerIsValid(array))
			return;
		channel->slots.array = array;
	}
	channel->capacity = capacity;
	slots = channel_slots(channel);
	memcpy(slots, dsa_get_address(area, old), channel->count * sizeof(uint32));
	dsa_free(area, old);
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
