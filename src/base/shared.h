/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  The shared memory of pg_herald.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_SHARED_H
#define HERALD_SHARED_H

#include "postgres.h"

#include "lib/dshash.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "core/inval_queue.h"
#include "core/queue.h"
#include "core/reasons.h"
#include "core/retention.h"
#include "core/wakeup.h"

/*
 * What is counted.  Each process counts in its own slot, where nobody else
 * writes; herald.stats adds up.  The order is that of the view's columns, whose
 * names are in views/views.c.
 */
typedef enum HeraldCounter
{
	HERALD_COUNT_NOTIFICATIONS, /* sent */
	HERALD_COUNT_BATCHES,		/* transactions that sent them */
	HERALD_COUNT_DUPLICATES,	/* removed within a transaction */
	HERALD_COUNT_DELIVERED,		/* sent to clients */
	HERALD_COUNT_WAKEUPS,		/* passes in which listeners read the queue */
	HERALD_COUNT_SIGNALS_SENT,
	HERALD_COUNT_SIGNALS_SAVED, /* a listener concerned that needed none */
	HERALD_COUNT_TURNS_RESCUED, /* taken back by the watchdog */
	HERALD_COUNT_SEGMENTS_SPILLED,	/* written to temporary files */
	HERALD_COUNT_SEGMENTS_DROPPED,	/* given up, for the limit or for want of disk */
	HERALD_COUNT_OVERRUNS,		/* listeners that missed notifications */
	HERALD_COUNT_INVALIDATIONS, /* sent */
	HERALD_COUNT_CACHE_RESETS,	/* backends that missed some */
	HERALD_COUNT_CATCH_UPS,		/* backends signalled because they were far behind */
	HERALD_COUNTERS
} HeraldCounter;

/* What a backend does with caches. */
typedef struct HeraldCacheUse
{
	_Atomic uint32_t database;
	_Atomic uint32_t role;
	_Atomic uint32_t values;	/* that it keeps */
	_Atomic uint64_t bytes;		/* of memory for them */
	_Atomic uint64_t hits;
	_Atomic uint64_t misses;
	_Atomic uint64_t invalidations; /* read, of its database */
	_Atomic uint64_t resets;
} HeraldCacheUse;

/* One per backend, and one for the watchdog. */
typedef struct HeraldSlot
{
	/* Wakers set bits, the backend takes them. */
	_Alignas(HERALD_CACHE_LINE) HeraldReasons reasons;

	/* The backend, before it joins and after it leaves; anybody reads. */
	_Atomic int32_t pid;		/* 0: not a listener */
	_Atomic int32_t process;	/* its number, for herald_proc_waits_elsewhere() */
	_Atomic uint32_t database;
	_Atomic uint32_t role;
	_Atomic uint32_t channels;	/* how many it listens to */

	/* The backend alone; anybody reads. */
	_Atomic uint64_t delivered; /* since it began to listen */
	_Atomic uint64_t wakeups;
	_Atomic uint64_t told;		/* the position that its client was told last; 0: it is told none */
	_Atomic uint64_t counters[HERALD_COUNTERS];

	/* The watchdog, and the backend before it joins; anybody reads. */
	_Atomic int64_t lagging_since;	/* a TimestampTz; 0: it does not lag */

	/* The backend: its pid once it attends to other reasons than notifications; else 0. */
	_Atomic int32_t attends;
	_Atomic uint32_t attends_to;	/* which */

	/* The backend, from when it first uses a cache on; anybody reads. */
	HeraldCacheUse cache;
} HeraldSlot;

/*
 * Transactions whose notifications went past our queue, in one database, or in those for
 * which there is no place left; notify/storage/bypass.c alone uses it.
 */
#define HERALD_BYPASSES		128

typedef struct HeraldBypass
{
	_Atomic uint32_t database;	/* 0: nobody's yet */
	_Atomic uint32_t count;
	_Atomic uint32_t last[HERALD_CHANNEL_SETS];	/* the number of the last one that may have notified channels of such a set */
} HeraldBypass;

typedef struct HeraldControl
{
	/*
	 * Constant after the start, but for the first; everybody reads it often, so what
	 * changes is in other cache lines.
	 */
	_Atomic uint32_t is_damaged;	/* 1: the queue is switched off (notify/dispatch/damage.c) */
	uint32		slots;			/* length of herald_slots */
	int			area_tranche;
	int			channels_tranche;
	dshash_table_handle channels;
	uint64		channel_seed;	/* of the hashes of channels; known to nobody */
	uint64		run;			/* drawn at random when shared memory is set up */
	uint8		token_key[32];	/* for notify/listener/token.c; known to nobody */
	LWLock	   *spill_lock;		/* notify/storage/spill.c alone takes it */
	LWLock	   *scan_lock;		/* for going through the channel map */
	LWLock	   *reasons_lock;	/* for entering a name in herald_reason_names */
	LWLock	   *invalidation_lock;	/* for inserting in herald_inval_queue, and joining it */

	/* The watchdog: its process number, or -1, and whether it sleeps deeply. */
	_Alignas(HERALD_CACHE_LINE) _Atomic int32_t watchdog;
	_Atomic uint32_t watchdog_sleeps;
	_Atomic uint32_t tells_positions;	/* 1: some session is told its position as the queue moves on */

	/* Backends that wait for a batch to be dispatched: their own, or one that their client knows of. */
	_Atomic uint32_t dispatch_waiters;
	ConditionVariable dispatched;

	/* Where the dispatch hangs: somebody has waited there in vain (notify/dispatch/dispatch.c). */
	_Atomic uint64_t stuck_at;

	/* Backends that wait for spill_lock. */
	_Atomic uint32_t spill_lock_waiters;
	ConditionVariable spill_lock_released;

	HeraldBypass bypasses[HERALD_BYPASSES];

	/* herald.reset_stats(): what the counters stood at, and when. */
	LWLock	   *reset_lock;
	uint64		reset_counters[HERALD_COUNTERS];
	TimestampTz reset_time;
} HeraldControl;

extern HeraldQueue *herald_queue;
extern HeraldWakeup *herald_wakeup;
extern HeraldSlot *herald_slots;
extern HeraldControl *herald_control;
extern HeraldInvalQueue *herald_inval_queue;
typedef struct HeraldFiles HeraldFiles;
typedef struct HeraldSpill HeraldSpill;
typedef struct HeraldRoom HeraldRoom;
typedef struct HeraldLargeFiles HeraldLargeFiles;
typedef struct HeraldReasonNames HeraldReasonNames;
extern HeraldFiles *herald_files;	/* notify/storage/files.c alone looks into it */
extern HeraldSpill *herald_spill;	/* notify/storage/spill.c alone */
extern HeraldRoom *herald_room;	/* notify/storage/room.c alone */
extern HeraldLargeFiles *herald_large_files;	/* notify/storage/large_files.c alone */
extern HeraldReasonNames *herald_reason_names;	/* api/reason_names.c alone */
extern void *herald_channel_area;	/* a DSA area, created in place */

/* This process's slot, below herald_control->slots. */
extern uint32 herald_shared_my_slot(void);

/*
 * Is the queue switched off (notify/dispatch/damage.c)?  [D5] Sequentially
 * consistent: a listener asks after it has changed its word; pairs with
 * herald_damage_found().
 */
static inline bool
herald_shared_is_damaged(void)
{
	return unlikely(atomic_load(&herald_control->is_damaged) != 0);
}

/* Add to a counter that this process alone writes: no locked instruction is needed. */
static inline void
herald_count(_Atomic uint64_t *counter, uint64 n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
						  memory_order_relaxed);
}

/* Add to this process's counter.  Never fails. */
extern void herald_shared_count(HeraldCounter counter, uint64 n);

#endif							/* HERALD_SHARED_H */
