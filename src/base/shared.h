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

#include "access/xlogdefs.h"
#include "lib/dshash.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"
#include "utils/timestamp.h"

#include "base/count.h"
#include "core/queue.h"
#include "core/reasons.h"
#include "core/retention.h"
#include "core/wakeup.h"
#include "core/receipt.h"

/*
 * The counters.  Each process counts in its own slot, which no other process writes;
 * herald.stats adds them up.  Their order is that of the view's columns, whose names are in
 * views/views.c.
 */
typedef enum HeraldCounter
{
	HERALD_COUNT_NOTIFICATIONS, /* sent */
	HERALD_COUNT_BATCHES,		/* transactions that sent them */
	HERALD_COUNT_DUPLICATES,	/* removed within a transaction */
	HERALD_COUNT_DELIVERED,		/* sent to clients */
	HERALD_COUNT_WAKEUPS,		/* passes of listeners over the queue */
	HERALD_COUNT_SIGNALS_SENT,
	HERALD_COUNT_SIGNALS_SAVED, /* listeners that had a message and needed no
								 * signal */
	HERALD_COUNT_TURNS_RESCUED, /* taken back by the watchdog */
	HERALD_COUNT_SEGMENTS_SPILLED,	/* written to temporary files */
	HERALD_COUNT_SEGMENTS_DROPPED,	/* given up, at the size limit or because
									 * saving failed */
	HERALD_COUNT_OVERRUNS,		/* listeners that missed notifications */
	HERALD_COUNTERS
} HeraldCounter;

/* pg_herald's own background workers: the watchdog, the housekeeper and the relay. */
#define HERALD_WORKERS		3

/* One per backend, and one per worker.  Any process may read the fields. */
typedef struct HeraldSlot
{
	/* Other processes set bits, the backend clears them. */
	HeraldReasons _Alignas(HERALD_CACHE_LINE) reasons;

	/* Written by the backend, before it joins and after it leaves. */
	_Atomic int32_t pid;		/* 0: not a listener */
	_Atomic int32_t process;	/* its process number, for
								 * herald_proc_waits_elsewhere() */
	_Atomic uint32_t database;
	_Atomic uint32_t role;
	_Atomic uint32_t channels;	/* number of channels that it listens to */

	/*
	 * What it has taken of the channel memory, and is about to take.  Written
	 * by the backend, and by others that leave a channel to it.
	 */
	_Atomic uint64_t channel_bytes;

	/* Written by the backend alone. */
	_Atomic uint64_t delivered; /* notifications since it began to listen */
	_Atomic uint64_t wakeups;
	_Atomic uint64_t told;		/* the last position sent to its client; 0: it
								 * sends none */
	_Atomic uint32_t heartbeat_ms;	/* it sends one this often:
									 * herald.heartbeat; 0: only as the queue
									 * advances */
	_Atomic uint64_t told_at_ms;	/* when its client was sent a position; 0:
									 * it does not listen to them */
	_Atomic uint64_t counters[HERALD_COUNTERS];

	/*
	 * Written by the backend: its pid once it handles reasons other than
	 * notifications; else 0.
	 */
	_Atomic int32_t attends;
	_Atomic uint32_t attends_to;	/* a bit for each of these reasons */

	/*
	 * Written by the backend: in a commit that may log notifications, its
	 * database and the version of the channel settings that it uses; else 0.
	 */
	_Atomic uint64_t composes;
} HeraldSlot;

/*
 * What all sessions of a database share: base/database.c.  The last entry is for all databases
 * that have no entry of their own.
 */
#define HERALD_DATABASES	128

typedef struct HeraldDatabase
{
	_Atomic uint32_t oid;		/* 0: unused */

	/*
	 * Transactions whose notifications bypassed our queue:
	 * notify/position/bypass.c.
	 */
	_Atomic uint32_t bypasses;

	/*
	 * For each set of channels: the last one that may have notified one of
	 * them.
	 */
	_Atomic uint32_t last_bypass[HERALD_CHANNEL_SETS];

	/*
	 * Odd while a change of settings is being committed:
	 * notify/settings/channel_settings.c.
	 */
	_Atomic uint32_t settings_version;
	_Atomic uint64_t settings_place;	/* the head of the queue when the last
										 * change was committed */

	/*
	 * What has its place before this one was sent in another database with
	 * this oid.
	 */
	_Atomic uint64_t created_at;
} HeraldDatabase;

/*
 * Anchors in the WAL of this run, in its order; notify/position/anchor.c has their meaning, and
 * alone uses them.
 */
#define HERALD_ANCHORS		64

typedef struct HeraldAnchor
{
	HeraldWalAnchor at;
	HeraldPosition place;
} HeraldAnchor;

typedef struct HeraldAnchors
{
	LWLock	   *lock;
	_Atomic uint32_t count;		/* written under the lock */
	HeraldAnchor items[HERALD_ANCHORS];
} HeraldAnchors;

/* The last batch with logged notifications.  Used only by notify/position/last_logged.c. */
typedef struct HeraldLastLogged
{
	slock_t		lock;
	HeraldCommitId commit;		/* end 0: there is no such batch */
} HeraldLastLogged;

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): groups of fields have cache lines of their own */
typedef struct HeraldControl
{
	/*
	 * Constant after the start, except for the first two fields.  All
	 * processes read these often, so fields that change are in other cache
	 * lines.
	 */
	_Atomic uint32_t is_damaged;	/* 1: the queue is switched off
									 * (notify/dispatch/damage.c) */

	/*
	 * [X4] 1: the WAL has an anchor of this run of the server.  Every session
	 * looks at this before each commit; it is written once.
	 */
	_Atomic uint32_t run_is_announced;
	uint32		slots;			/* length of herald_slots */
	int			area_tranche;
	int			channels_tranche;
	dshash_table_handle channels;
	uint64		channel_seed;	/* secret seed of the hashes of channels */
	uint64		server_run;		/* drawn at random when shared memory is set
								 * up */
	LWLock	   *spill_lock;		/* these two are taken only by
								 * notify/storage/spill.c */
	LWLock	   *deletion_lock;	/* before spill_lock */
	LWLock	   *scan_lock;		/* for going through the channel map */
	LWLock	   *reasons_lock;	/* for entering a name in herald_reason_names */

	/*
	 * The watchdog's process number, or -1; and whether it is in a long
	 * sleep, which herald_wake_watchdog_if_asleep() ends.
	 */
	_Atomic int32_t _Alignas(HERALD_CACHE_LINE) watchdog;
	_Atomic uint32_t watchdog_sleeps;
	_Atomic uint32_t tells_positions;	/* 1: some session sends its position
										 * to its client as the queue advances */
	_Atomic uint32_t heartbeats_changed;	/* 1: some session has a new
											 * heartbeat since the watchdog
											 * last looked */

	/*
	 * Number of backends that wait until batches are settled: their own,
	 * those that their client knows of, or, to get room in the ring, those of
	 * its oldest segment.  While there are any, the dispatcher announces at
	 * the condition variable that `settled` has moved.
	 */
	_Atomic uint32_t dispatch_waiters;
	ConditionVariable settled_moved;

	/*
	 * For notify/sender/admission.c: a sender waits for room; the end of the
	 * latest large batch.
	 */
	_Atomic bool room_is_awaited;
	_Atomic uint64_t large_end;

	_Atomic bool housekeeper_runs;

	/*
	 * Logged channels.  logs: 1: this server has written a message, or is
	 * about to, or has relayed one.
	 */
	_Atomic uint32_t logs;
	HeraldAnchors anchors;
	_Atomic uint32_t wants_anchor;	/* 1: a setting has changed since the last
									 * one */
	HeraldLastLogged _Alignas(HERALD_CACHE_LINE) last_logged;

	/*
	 * For a session that changes channel settings: a commit that has used
	 * older ones has ended.
	 */
	ConditionVariable settings_released;

	HeraldDatabase databases[HERALD_DATABASES];

	/*
	 * For herald.reset_stats(): the values of the counters at the last reset,
	 * and its time.
	 */
	LWLock	   *reset_lock;
	uint64		reset_counters[HERALD_COUNTERS];
	TimestampTz reset_time;
} HeraldControl;

extern HeraldQueue *herald_queue;
extern HeraldWakeup *herald_wakeup;
extern HeraldSlot *herald_slots;
extern HeraldControl *herald_control;
typedef struct HeraldFiles HeraldFiles;
typedef struct HeraldSpill HeraldSpill;
typedef struct HeraldReasonNames HeraldReasonNames;
typedef struct HeraldRelay HeraldRelay;
extern HeraldFiles *herald_files;	/* used only by notify/storage/files.c */
extern HeraldSpill *herald_spill;	/* used only by notify/storage/spill.c */
extern HeraldLargeTable *herald_large_table;
extern HeraldReasonNames *herald_reason_names;	/* used only by
												 * api/reason_names.c */
extern HeraldRelay *herald_relay;	/* used only by notify/relay/relay.c */
extern void *herald_channel_area;	/* a DSA area, created in place */

/* This process is a worker, with a number from 1 to HERALD_WORKERS: once, before it uses its slot. */
extern void herald_shared_set_worker(uint32 number);

/* This process's slot, below herald_control->slots. */
extern uint32 herald_shared_my_slot(void);

/* This process's word, as a listener. */
extern uint64 herald_shared_my_word(void);

/*
 * Is the queue switched off (notify/dispatch/damage.c)?  [D5] Sequentially consistent: a
 * listener calls this after it has changed its word; pairs with herald_damage_found().
 */
static inline bool
herald_shared_is_damaged(void)
{
	return unlikely(atomic_load(&herald_control->is_damaged) != 0);
}

/* Add to this process's counter.  Never fails. */
extern void herald_shared_count(HeraldCounter counter, uint64 n);

#endif							/* HERALD_SHARED_H */
