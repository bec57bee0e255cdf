/*-------------------------------------------------------------------------
 *
 * store.c
 *	  The values that this session caches.
 *
 * Entries are found by the hashes of cache and key, which invalidations also use, and then
 * compared by their names.  Beyond herald_cache.memory the least recently used entries are
 * discarded.
 *
 * Some entries are temporary.  A value that was computed in a transaction that has written
 * something may include changes that no other session will ever see: if the transaction or a
 * part of it is rolled back, such values are discarded.  And a value that may not be kept,
 * because its snapshot does not see some change, is correct for that snapshot, whichever rows
 * change: so a statement that needs it for a thousand rows computes it once.  (Only TRUNCATE
 * is seen by older snapshots too.)
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "base/compat.h"
#include "cache/store.h"
#include "core/inval_queue.h"
#include "inval/cache_involvement.h"
#include "inval/cache_shared.h"
#include "inval/invalidate.h"
#include "inval/subscribers.h"

/* Approximate bytes of an entry in the server's hash table. */
#define PLACE_BYTES		64

/* Approximate bytes of the empty tables. */
#define EMPTY_BYTES		((Size) 128 * 1024)

/* The entries of a cache whose keys have the same hash. */
typedef struct Place
{
	uint32		hashes[2];		/* of the cache and the key */
	dlist_head	entries;
} Place;

typedef struct Cache
{
	uint32		hash;
	dlist_head	entries;
	dlist_head	sources;
} Cache;

/* A query of a cache, in one chunk of memory with the data that it points to. */
typedef struct Source
{
	Cache	   *in;
	dlist_node	in_cache;
	uint32		entries;
	Size		bytes;
	text	   *cache;
	text	   *query;
	char	   *path;
	int			count;
	Oid		   *types;
} Source;

typedef enum EntryState
{
	ENTRY_TENTATIVE,			/* until the transaction ends */
	ENTRY_PASSING,				/* for store.passing_for only */
	ENTRY_KEPT
} EntryState;

/* In one chunk of memory with the texts that it points to. */
typedef struct Entry
{
	Place	   *place;
	Source	   *source;
	dlist_node	in_place;
	dlist_node	in_cache;
	dlist_node	by_use;
	dlist_node	by_state;		/* unless it is ENTRY_KEPT */
	EntryState	state;
	Oid			role;
	Size		bytes;
	text	   *key;
	text	   *value;			/* NULL: an SQL null */
} Entry;

int			herald_cache_memory_kb;

static struct
{
	MemoryContext context;		/* NULL: nothing is allocated */
	HTAB	   *places;
	HTAB	   *caches;
	dlist_head	by_use;			/* the most recently used one comes first */
	dlist_head	tentative;
	dlist_head	passing;
	SnapshotData passing_for;	/* the fields that is_passing_for() compares */
	Size		bytes;
	uint32		values;
}			store;

static bool is_kept_at_end;		/* keep_at_end() was called in this
								 * transaction; abandon() leaves it */

static void create(void);
static void abandon(void);
static void forget(uint32 cache, uint32 key, void *arg);
static Entry *find(const HeraldStoreName *name);
static bool add(const HeraldStoreName *name, const text *value, EntryState state);
static Entry *allocate(Size size, Size limit);
static Source *find_source(const HeraldStoreName *name);
static void discard_source(Source *source);
static bool is_from(const Source *source, const HeraldStoreName *name);
static void discard(Entry *entry);
static void keep_at_end(void);
static void keep_tentative(void *arg);
static void discard_list(dlist_head *entries, size_t offset, bool passing_too);
static bool is_passing_for(Snapshot snapshot);
static void trim(Size limit);
static void report_use(void);
static bool same_text(const text *a, const text *b);
static text *copy_text(char **to, const text *value);


HeraldStoreName
herald_store_name(const text *cache, const text *key, const text *query,
				  int count, const Oid *types)
{
	HeraldStoreName name = {
		.cache = cache,
		.key = key,
		.query = query,
		.count = count,
		.types = types,
		.path = namespace_search_path,
		.role = GetUserId(),
		.cache_hash = herald_invalidate_hash_text(cache),
		.key_hash = herald_invalidate_hash_text(key),
	};

	return name;
}

bool
herald_store_is_usable(void)
{
	/*
	 * The server would not see what a serializable transaction reads from a
	 * cache.
	 */
	return herald_cache_memory_kb > 0 && !RecoveryInProgress() && !IsolationIsSerializable();
}

bool
herald_store_get(const HeraldStoreName *name, Snapshot snapshot, text **value)
{
	Entry	   *entry = find(name);

	if (entry == NULL || (entry->state == ENTRY_PASSING && !is_passing_for(snapshot)))
		return false;
	dlist_move_head(&store.by_use, &entry->by_use);
	*value = NULL;
	if (entry->value)
	{
		*value = palloc(VARSIZE_ANY(entry->value));
		memcpy(*value, entry->value, VARSIZE_ANY(entry->value));
	}
	return true;
}

bool
herald_store_put(const HeraldStoreName *name, const text *value)
{
	return add(name, value,
			   TransactionIdIsValid(GetTopTransactionIdIfAny()) ? ENTRY_TENTATIVE : ENTRY_KEPT);
}

bool
herald_store_put_passing(const HeraldStoreName *name, Snapshot snapshot, const text *value)
{
	if (store.context == NULL)
		create();
	if (!is_passing_for(snapshot))
	{
		TransactionId *running = store.passing_for.xip;

		if (snapshot->snapshot_type != SNAPSHOT_MVCC || snapshot->takenDuringRecovery ||
			TransactionIdIsValid(GetTopTransactionIdIfAny()))
			return false;
		discard_list(&store.passing, offsetof(Entry, by_state), true);
		if (snapshot->xcnt > 0)
			memcpy(running, snapshot->xip, snapshot->xcnt * sizeof(TransactionId));
		store.passing_for.xmin = snapshot->xmin;
		store.passing_for.xmax = snapshot->xmax;
		store.passing_for.xcnt = snapshot->xcnt;
	}
	return add(name, value, ENTRY_PASSING);
}

/* Drop values: a HeraldForget. */
static void
forget(uint32 cache, uint32 key, void *arg)
{
	if (store.context == NULL)
		return;

	if (cache == HERALD_KEY_ALL)
		trim(0);
	else if (key == HERALD_KEY_ALL)
	{
		Cache	   *found = hash_search(store.caches, &cache, HASH_FIND, NULL);

		if (found)
			discard_list(&found->entries, offsetof(Entry, in_cache), true);
	}
	else
	{
		uint32		hashes[2] = {cache, key};
		Place	   *found = hash_search(store.places, hashes, HASH_FIND, NULL);

		if (found)
			discard_list(&found->entries, offsetof(Entry, in_place), false);
	}
	report_use();
}

void
herald_store_abort(void)
{
	if (store.context == NULL)
		return;
	discard_list(&store.tentative, offsetof(Entry, by_state), true);
	report_use();
}

void
herald_store_trim(int limit_kb, void *extra)
{
	if (store.context == NULL)
		return;
	trim((Size) limit_kb * 1024);
	report_use();
}

static void
create(void)
{
	static bool is_subscribed;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "pg_herald caches",
												  ALLOCSET_DEFAULT_SIZES);
	HASHCTL		control = {.keysize = 2 * sizeof(uint32),.entrysize = sizeof(Place),.hcxt = context};

	if (!is_subscribed)
		herald_invalidation_subscribe(forget, NULL);
	is_subscribed = true;
	store.places = hash_create("pg_herald cached keys", 256, &control,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	control.keysize = sizeof(uint32);
	control.entrysize = sizeof(Cache);
	store.caches = hash_create("pg_herald caches", 16, &control,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	dlist_init(&store.by_use);
	dlist_init(&store.tentative);
	dlist_init(&store.passing);
	store.passing_for.xip = MemoryContextAlloc(context, (GetMaxSnapshotXidCount() + 1) * sizeof(TransactionId));
	store.context = context;
}

/* Discard all entries and all memory. */
static void
abandon(void)
{
	MemoryContext context = store.context;

	memset(&store, 0, sizeof(store));
	MemoryContextDelete(context);
}

static Entry *
find(const HeraldStoreName *name)
{
	uint32		hashes[2] = {name->cache_hash, name->key_hash};
	Place	   *place;
	dlist_iter	at;

	if (store.context == NULL)
		return NULL;
	place = hash_search(store.places, hashes, HASH_FIND, NULL);
	if (place == NULL)
		return NULL;
	dlist_foreach(at, &place->entries)
	{
		Entry	   *entry = dlist_container(Entry, in_place, at.cur);

		if (entry->role == name->role && same_text(entry->key, name->key) &&
			is_from(entry->source, name))
			return entry;
	}
	return NULL;
}

/* False: the value does not fit. */
static bool
add(const HeraldStoreName *name, const text *value, EntryState state)
{
	Size		limit = (Size) herald_cache_memory_kb * 1024;
	Size		size = MAXALIGN(sizeof(Entry)) + MAXALIGN(VARSIZE_ANY(name->key)) +
		(value ? VARSIZE_ANY(value) : 0);
	uint32		hashes[2] = {name->cache_hash, name->key_hash};
	Entry	   *entry;
	char	   *texts;
	bool		found;
	bool		fits;

	/* Too much memory is in free chunks whose sizes are not needed now. */
	if (store.context && MemoryContextMemAllocated(store.context, true) > 2 * limit + EMPTY_BYTES)
		abandon();
	if (store.context == NULL)
		create();

	entry = find(name);
	if (entry)
		discard(entry);

	/*
	 * Steps that may throw come first, and leave at most an empty list
	 * behind.
	 */
	entry = allocate(size, limit);
	if (entry == NULL)
	{
		report_use();
		return false;
	}
	entry->source = NULL;
	PG_TRY();
	{
		entry->source = find_source(name);
		entry->place = hash_search(store.places, hashes, HASH_ENTER, &found);
		if (!found)
			dlist_init(&entry->place->entries);
	}
	PG_CATCH();
	{
		if (entry->source && entry->source->entries == 0)
			discard_source(entry->source);
		pfree(entry);
		PG_RE_THROW();
	}
	PG_END_TRY();

	texts = (char *) entry + MAXALIGN(sizeof(Entry));
	entry->key = copy_text(&texts, name->key);
	entry->value = value ? copy_text(&texts, value) : NULL;
	entry->role = name->role;
	entry->state = state;
	entry->source->entries++;
	dlist_push_head(&entry->place->entries, &entry->in_place);
	dlist_push_head(&entry->source->in->entries, &entry->in_cache);
	dlist_push_head(&store.by_use, &entry->by_use);
	if (state == ENTRY_PASSING)
		dlist_push_head(&store.passing, &entry->by_state);
	if (state == ENTRY_TENTATIVE)
	{
		keep_at_end();
		dlist_push_head(&store.tentative, &entry->by_state);
		herald_cache_is_involved = true;
	}
	store.bytes += entry->bytes;
	store.values++;

	fits = entry->bytes + entry->source->bytes <= limit;
	if (fits)
		trim(limit);
	else
		discard(entry);
	report_use();
	return fits;
}

/* Have tentative values become valid when the server frees the transaction's memory: once in each transaction. */
static void
keep_at_end(void)
{
	static MemoryContextCallback at_end = {.func = keep_tentative};

	if (!is_kept_at_end)
		MemoryContextRegisterResetCallback(TopTransactionContext, &at_end);
	is_kept_at_end = true;
}

/* After a rollback there are none. */
static void
keep_tentative(void *arg)
{
	is_kept_at_end = false;
	if (store.context == NULL)
		return;
	while (!dlist_is_empty(&store.tentative))
		dlist_container(Entry, by_state, dlist_pop_head_node(&store.tentative))->state = ENTRY_KEPT;
}

/*
 * Allocate an entry and set its size; NULL: it does not fit.  A value may be almost as large
 * as palloc() allows; with its names it is larger.
 */
static Entry *
allocate(Size size, Size limit)
{
	Entry	   *entry;

	if (size + PLACE_BYTES > limit)
		return NULL;
	entry = MemoryContextAllocHuge(store.context, size);
	entry->bytes = GetMemoryChunkSpace(entry) + PLACE_BYTES;
	if (entry->bytes > limit)
	{
		pfree(entry);
		return NULL;
	}
	return entry;
}

/* Find the query that the value is a result of, or create it, without entries. */
static Source *
find_source(const HeraldStoreName *name)
{
	Size		types_size = name->count * sizeof(Oid);
	Size		size = MAXALIGN(sizeof(Source)) + MAXALIGN(types_size) + MAXALIGN(VARSIZE_ANY(name->cache)) +
		MAXALIGN(VARSIZE_ANY(name->query)) + strlen(name->path) + 1;
	bool		found;
	Cache	   *cache = hash_search(store.caches, &name->cache_hash, HASH_ENTER, &found);
	Source	   *source;
	char	   *at;
	dlist_iter	each;

	if (!found)
	{
		dlist_init(&cache->entries);
		dlist_init(&cache->sources);
	}
	dlist_foreach(each, &cache->sources)
	{
		source = dlist_container(Source, in_cache, each.cur);
		if (is_from(source, name))
			return source;
	}

	source = MemoryContextAllocHuge(store.context, size);
	at = (char *) source + MAXALIGN(sizeof(Source));
	source->in = cache;
	source->entries = 0;
	source->bytes = GetMemoryChunkSpace(source);
	source->count = name->count;
	source->types = (Oid *) at;
	if (types_size > 0)
		memcpy(at, name->types, types_size);
	at += MAXALIGN(types_size);
	source->cache = copy_text(&at, name->cache);
	source->query = copy_text(&at, name->query);
	source->path = memcpy(at, name->path, strlen(name->path) + 1);
	dlist_push_head(&cache->sources, &source->in_cache);
	store.bytes += source->bytes;
	return source;
}

static void
discard_source(Source *source)
{
	dlist_delete(&source->in_cache);
	if (dlist_is_empty(&source->in->sources))
		(void) hash_search(store.caches, &source->in->hash, HASH_REMOVE, NULL);
	store.bytes -= source->bytes;
	pfree(source);
}

static bool
is_from(const Source *source, const HeraldStoreName *name)
{
	return same_text(source->query, name->query) && same_text(source->cache, name->cache) &&
		source->count == name->count &&
		(name->count == 0 || memcmp(source->types, name->types, name->count * sizeof(Oid)) == 0) &&
		strcmp(source->path, name->path) == 0;
}

static void
discard(Entry *entry)
{
	dlist_delete(&entry->in_place);
	dlist_delete(&entry->in_cache);
	dlist_delete(&entry->by_use);
	if (entry->state != ENTRY_KEPT)
		dlist_delete(&entry->by_state);
	if (dlist_is_empty(&entry->place->entries))
		(void) hash_search(store.places, entry->place->hashes, HASH_REMOVE, NULL);
	if (--entry->source->entries == 0)
		discard_source(entry->source);
	store.values--;
	store.bytes -= entry->bytes;
	pfree(entry);
}

/*
 * Discard all entries of a list, or all except those for one snapshot.  The list itself may be
 * freed with its last entry.
 */
static void
discard_list(dlist_head *entries, size_t offset, bool passing_too)
{
	/* An error in add() may have left the list empty. */
	dlist_node *node = dlist_is_empty(entries) ? NULL : dlist_head_node(entries);

	while (node)
	{
		dlist_node *next = dlist_has_next(entries, node) ? dlist_next_node(entries, node) : NULL;
		Entry	   *entry = (Entry *) ((char *) node - offset);

		if (passing_too || entry->state != ENTRY_PASSING)
			discard(entry);
		node = next;
	}
}

/*
 * Snapshots with the same transactions in progress see the same data, as long as this
 * transaction has written nothing itself.
 */
static bool
is_passing_for(Snapshot snapshot)
{
	return snapshot != NULL && snapshot->snapshot_type == SNAPSHOT_MVCC &&
		!snapshot->takenDuringRecovery &&
		TransactionIdIsValid(store.passing_for.xmax) &&
		snapshot->xmin == store.passing_for.xmin && snapshot->xmax == store.passing_for.xmax &&
		snapshot->xcnt == store.passing_for.xcnt &&
		(snapshot->xcnt == 0 ||
		 memcmp(snapshot->xip, store.passing_for.xip, snapshot->xcnt * sizeof(TransactionId)) == 0) &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void
trim(Size limit)
{
	dlist_node *node = dlist_is_empty(&store.by_use) ? NULL : dlist_tail_node(&store.by_use);

	while (node && store.bytes > limit)
	{
		dlist_node *before = dlist_has_prev(&store.by_use, node) ? dlist_prev_node(&store.by_use, node) : NULL;

		discard(dlist_container(Entry, by_use, node));
		node = before;
	}
}

static void
report_use(void)
{
	HeraldCacheUse *use = herald_cache_my_use();

	atomic_store_explicit(&use->values, store.values, memory_order_relaxed);
	atomic_store_explicit(&use->bytes, store.bytes, memory_order_relaxed);
}

static bool
same_text(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/* Moves *to behind the copy. */
static text *
copy_text(char **to, const text *value)
{
	text	   *copy = (text *) *to;

	memcpy(copy, value, VARSIZE_ANY(value));
	*to += MAXALIGN(VARSIZE_ANY(value));
	return copy;
}
