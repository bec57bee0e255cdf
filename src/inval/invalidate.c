/*-------------------------------------------------------------------------
 *
 * invalidate.c
 *	  The current transaction's invalidations, until they are in the queue.
 *
 * They are put there before the commit record is written: so a backend that sees the commit,
 * and then reads the queue, finds them.  If they are read too early, or the commit fails, this
 * only costs an unnecessary computation.  Each contains the transaction's id, from which
 * readers know whether a newly computed value includes the change; so a transaction that
 * invalidates has an id.
 *
 * A prepared transaction needs nothing more.  Until COMMIT PREPARED, in any session, its id is
 * in progress for all snapshots.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "base/subtransaction_levels.h"
#include "core/stop_point.h"
#include "inval/cache_shared.h"
#include "inval/cache_involvement.h"
#include "inval/catch_up.h"
#include "inval/invalidate.h"
#include "inval/subscribers.h"

/* A transaction that invalidates more keys of one cache than this invalidates all of it. */
#define KEYS_MAX		1024

/* A transaction that invalidates more keys than this altogether invalidates all caches. */
#define ITEMS_MAX		65536

/* Up to this number of items are searched linearly. */
#define FEW				8

/* An invalidated key; also the key of the table `known`. */
typedef struct InvalidKey
{
	uint32		cache;
	uint32		key;
} InvalidKey;

static struct
{
	MemoryContext context;		/* of all these; NULL: nothing is pending */
	HTAB	   *known;			/* set of InvalidKeys; NULL while there are
								 * few */
	InvalidKey *items;			/* in the order in which they were added */
	uint32		count;
	uint32		room;
}			pending;

static HeraldLevels levels;

static void create(void);
static void reset(void *arg);
static void add(uint32 cache, uint32 key);
static uint32 count_keys(uint32 cache);
static TransactionId announce(void);
static void insert(HeraldInvalidation *messages, uint32 count);
static int	compare_items(const void *a, const void *b);


/*
 * Blanks are ignored: a value of char(n) is equal to a text with more blanks.  Never fails and
 * allocates nothing, for users of the C interface.
 */
uint32
herald_invalidate_hash(const void *name, size_t length)
{
	const unsigned char *bytes = name;
	unsigned char part[256];
	int			used = 0;
	uint32		hash = 0;

	for (size_t i = 0; i < length; i++)
	{
		if (bytes[i] == ' ')
			continue;
		if (used == sizeof(part))
		{
			hash = hash_combine(hash, hash_bytes(part, used));
			used = 0;
		}
		part[used++] = bytes[i];
	}
	hash = hash_combine(hash, hash_bytes(part, used));
	return hash == HERALD_KEY_ALL ? 1 : hash;
}

uint32
herald_invalidate_hash_text(const text *name)
{
	return herald_invalidate_hash(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
}

void
herald_invalidate(uint32 cache, uint32 key)
{
	PreventCommandDuringRecovery("invalidating a cache");
	PreventCommandIfParallelMode("invalidating a cache");
	herald_invalidation_apply(cache, key);
	if (herald_invalidate_is_pending(cache, key) ||
		herald_invalidate_is_pending(cache, HERALD_KEY_ALL))
		return;

	(void) GetTopTransactionId();
	if (pending.context == NULL)
		create();
	if (pending.count == pending.room)
	{
		/* Limit the keys that are kept for one cache, however much changes. */
		if (count_keys(cache) > KEYS_MAX)
			key = HERALD_KEY_ALL;
		pending.items = repalloc_huge(pending.items, (Size) pending.room * 2 * sizeof(InvalidKey));
		pending.room *= 2;
	}
	herald_cache_is_involved = true;
	herald_levels_note(&levels, pending.count);
	add(cache, key);

	/* Called by another module's callback, after ours. */
	if (herald_cache_is_committing)
	{
		HeraldInvalidation message = {MyDatabaseId, cache, key, announce()};

		insert(&message, 1);
	}
}

bool
herald_invalidate_is_pending(uint32 cache, uint32 key)
{
	InvalidKey	item = {cache, key};

	if (pending.known)
		return hash_search(pending.known, &item, HASH_FIND, NULL) != NULL;
	for (uint32 i = 0; i < pending.count; i++)
		if (pending.items[i].cache == cache && pending.items[i].key == key)
			return true;
	return false;
}

bool
herald_invalidate_any_pending(void)
{
	return pending.count > 0;
}

void
herald_invalidate_publish(void)
{
	HeraldInvalidation messages[HERALD_INVAL_WRITE_QUANTUM];
	TransactionId xid;
	uint32		count = 0;

	if (pending.count == 0)
		return;

	if (pending.count > ITEMS_MAX)
	{
		pending.items[0].cache = pending.items[0].key = HERALD_KEY_ALL;
		pending.count = 1;
		pending.known = NULL;
	}

	/* Sort by cache; HERALD_KEY_ALL sorts first within a cache. */
	if (pending.count > 1)
		qsort(pending.items, pending.count, sizeof(InvalidKey), compare_items);
	xid = announce();
	HERALD_STOP_POINT("invalidate-announced");

	for (uint32 i = 0; i < pending.count;)
	{
		InvalidKey	item = pending.items[i];
		uint32		end = i + 1;

		while (end < pending.count && pending.items[end].cache == item.cache)
			end++;
		if (end - i > KEYS_MAX)
			item.key = HERALD_KEY_ALL;
		i = item.key == HERALD_KEY_ALL ? end : i + 1;

		messages[count].database = MyDatabaseId;
		messages[count].cache = item.cache;
		messages[count].key = item.key;
		messages[count].xid = xid;
		count++;
		if (count == HERALD_INVAL_WRITE_QUANTUM)
		{
			insert(messages, count);
			count = 0;
			CHECK_FOR_INTERRUPTS();
		}
	}
	if (count > 0)
		insert(messages, count);
	HERALD_STOP_POINT("invalidate-published");
}

void
herald_invalidate_subcommit(void)
{
	herald_levels_subcommit(&levels);
}

void
herald_invalidate_subabort(void)
{
	uint64		start = herald_levels_subabort(&levels, pending.count);

	while (pending.count > start)
	{
		pending.count--;
		if (pending.known)
			(void) hash_search(pending.known, &pending.items[pending.count], HASH_REMOVE, NULL);
	}
}

void
herald_invalidate_end(void)
{
	if (pending.context == NULL)
		return;

	/*
	 * [I7] The transaction is visibly over, or among the prepared ones: pairs
	 * with join() of inval_reader.c
	 */
	atomic_store_explicit(&herald_inval_queue->readers[herald_my_slot()].committing, 0,
						  memory_order_release);
}

/*
 * The server frees the transaction's memory at its very end, when no session waits for it any
 * more.  The list may be large, so freeing it can take long.
 */
static void
create(void)
{
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "pg_herald invalidations",
												  ALLOCSET_SMALL_SIZES);
	static MemoryContextCallback at_end = {.func = reset};

	memset(&pending, 0, sizeof(pending));
	pending.room = 4 * FEW;
	pending.items = MemoryContextAlloc(context, pending.room * sizeof(InvalidKey));
	MemoryContextRegisterResetCallback(context, &at_end);
	pending.context = context;
}

static void
reset(void *arg)
{
	HERALD_HOLD_POINT("invalidate-reset");
	herald_levels_reset(&levels);
	memset(&pending, 0, sizeof(pending));
}

/* There must be room for the item. */
static void
add(uint32 cache, uint32 key)
{
	InvalidKey	item = {cache, key};

	if (pending.count == FEW && pending.known == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(InvalidKey),
			.entrysize = sizeof(InvalidKey),
			.hcxt = pending.context
		};
		HTAB	   *known = hash_create("pg_herald invalidations", 64, &control,
										HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

		for (uint32 i = 0; i < pending.count; i++)
			(void) hash_search(known, &pending.items[i], HASH_ENTER, NULL);
		pending.known = known;
	}
	if (pending.known)
		(void) hash_search(pending.known, &item, HASH_ENTER, NULL);
	pending.items[pending.count++] = item;
}

static uint32
count_keys(uint32 cache)
{
	uint32		keys = 0;

	for (uint32 i = 0; i < pending.count; i++)
		keys += pending.items[i].cache == cache;
	return keys;
}

/*
 * Announce that our transaction, which is about to put messages into the queue, is not over.
 * Returns its id.
 */
static TransactionId
announce(void)
{
	HeraldInvalReader *mine = &herald_inval_queue->readers[herald_my_slot()];
	TransactionId xid = GetTopTransactionIdIfAny();

	/*
	 * [I7] This comes before the messages: pairs with join() of
	 * inval_reader.c
	 */
	atomic_store_explicit(&mine->committing, xid, memory_order_seq_cst);
	return xid;
}

static void
insert(HeraldInvalidation *messages, uint32 count)
{
	int32		wake;

	LWLockAcquire(herald_cache_control->invalidation_lock, LW_EXCLUSIVE);
	wake = herald_inval_insert(herald_inval_queue, messages, count);
	LWLockRelease(herald_cache_control->invalidation_lock);
	herald_catch_up_wake(wake);
}

static int
compare_items(const void *a, const void *b)
{
	const InvalidKey *left = a;
	const InvalidKey *right = b;

	if (left->cache != right->cache)
		return left->cache < right->cache ? -1 : 1;
	if (left->key != right->key)
		return left->key < right->key ? -1 : 1;
	return 0;
}
