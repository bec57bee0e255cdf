/*-------------------------------------------------------------------------
 *
 * views.c
 *	  The functions behind the views of schema herald.
 *
 * A user sees the listeners of roles whose privileges the user has, and their channels; a
 * member of pg_read_all_stats sees all listeners.  All databases share the queue: so that a user
 * does not see how long others' payloads are, and when exactly they came, sizes and positions are
 * in whole segments for all others, and times in whole seconds.  Values are read while other processes
 * change them: each value is correct, but they need not be from the same moment.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "commands/async.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/row.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/visible.h"
#include "base/wake_watchdog.h"
#include "core/stop_point.h"
#include "notify/channels/channel_map.h"
#include "notify/position/anchor.h"
#include "notify/position/kept.h"
#include "notify/position/lag.h"
#include "notify/storage/spill.h"

PG_FUNCTION_INFO_V1(herald_view_listeners);
PG_FUNCTION_INFO_V1(herald_view_channels);
PG_FUNCTION_INFO_V1(herald_view_queue);
PG_FUNCTION_INFO_V1(herald_view_stats);
PG_FUNCTION_INFO_V1(herald_reset_stats);
PG_FUNCTION_INFO_V1(herald_watchdog_process);
PG_FUNCTION_INFO_V1(herald_pg_notification_queue_usage);

/* The columns of herald.stats. */
static const char *const counter_names[] = {
	[HERALD_COUNT_NOTIFICATIONS] = "notifications",
	[HERALD_COUNT_BATCHES] = "batches",
	[HERALD_COUNT_DUPLICATES] = "duplicates_removed",
	[HERALD_COUNT_DELIVERED] = "delivered",
	[HERALD_COUNT_WAKEUPS] = "wakeups",
	[HERALD_COUNT_SIGNALS_SENT] = "signals_sent",
	[HERALD_COUNT_SIGNALS_SAVED] = "signals_saved",
	[HERALD_COUNT_TURNS_RESCUED] = "turns_rescued",
	[HERALD_COUNT_SEGMENTS_SPILLED] = "segments_spilled",
	[HERALD_COUNT_SEGMENTS_DROPPED] = "segments_dropped",
	[HERALD_COUNT_OVERRUNS] = "overruns",
};

StaticAssertDecl(lengthof(counter_names) == HERALD_COUNTERS, "each counter has a name");

/* For the channel visitor. */
typedef struct ChannelRows
{
	bool		sees_all;
	Oid		   *roles;			/* by slot: the role if the user may see it,
								 * else InvalidOid */
	bool		is_full;		/* there are more channels than `size` */
	int			used;
	int			size;
	struct
	{
		char		name[NAMEDATALEN];
		int64		listeners;
		bool		all_visible;
		int64		sent;
		int64		delivered;
		TimestampTz last_sent;
		TimestampTz since;
	}		   *rows;
} ChannelRows;

static const char *state_name(uint64 word);
static bool is_visible(uint32 slot, void *arg);
static bool add_channel(const HeraldChannelInfo *channel, void *arg);
static bool reset_channel(const HeraldChannelInfo *channel, void *arg);
static void read_counters(uint64 *totals);
static int64 shown_position(HeraldPosition position, bool all);
static int64 shown_size(uint64 bytes, bool all);
static TimestampTz shown_time(TimestampTz time, bool all);
static uint64 queue_used(void);
static double usage(uint64 used);


/* herald.get_listeners() → setof record */
Datum
herald_view_listeners(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		all = herald_sees_all();

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
	{
		HeraldSlot *listener = &herald_slots[slot];
		uint64		word = atomic_load(herald_wakeup_word(herald_wakeup, slot));
		TimestampTz pending_since = 0;
		Oid			role = atomic_load(&listener->role);
		bool		is_pending;
		Interval	heartbeat = {0};
		HeraldRow	row;

		if (herald_word_state(word) == HERALD_LISTENER_FREE || !(all || herald_sees_role(role)))
			continue;

		row = herald_row_of(result->setDesc);
		herald_row_add(&row, "pid", INT4OID, Int32GetDatum(atomic_load(&listener->pid)));
		herald_row_add(&row, "datid", OIDOID, ObjectIdGetDatum(atomic_load(&listener->database)));
		herald_row_add(&row, "role", OIDOID, ObjectIdGetDatum(role));
		herald_row_add(&row, "state", TEXTOID, CStringGetTextDatum(state_name(word)));
		herald_row_add(&row, "channels", INT4OID, Int32GetDatum(atomic_load(&listener->channels)));
		herald_row_add(&row, "pending_bytes", INT8OID, Int64GetDatum(shown_size(herald_lag_bytes(word), all)));
		is_pending = herald_lag_since(word, &pending_since);
		herald_row_add_or_null(&row, "pending_since", TIMESTAMPTZOID,
							   TimestampTzGetDatum(shown_time(pending_since, all)), !is_pending);
		herald_row_add(&row, "delivered", INT8OID, UInt64GetDatum(atomic_load(&listener->delivered)));
		herald_row_add(&row, "wakeups", INT8OID, UInt64GetDatum(atomic_load(&listener->wakeups)));
		heartbeat.time = (TimeOffset) atomic_load(&listener->heartbeat_ms) * 1000;
		herald_row_add_or_null(&row, "heartbeat", INTERVALOID, IntervalPGetDatum(&heartbeat),
							   atomic_load(&listener->told_at_ms) == 0);

		/* A session of another role may have taken the slot meanwhile. */
		if (!all && atomic_load(&listener->role) != role)
			continue;
		herald_row_store(&row, result);
	}
	return (Datum) 0;
}

/*
 * herald.get_channels() → setof record
 *
 * Channels of the current database; names in other databases may have another encoding.
 */
Datum
herald_view_channels(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ChannelRows found = {.size = 512,.sees_all = herald_sees_all()};

	/*
	 * The scan holds locks of the map: steps that need catalogs or memory
	 * come before it, and steps that may write to disk after it.
	 */
	InitMaterializedSRF(fcinfo, 0);
	found.roles = palloc0(herald_wakeup->slots * sizeof(Oid));
	for (uint32 slot = 0; slot < herald_wakeup->slots && !found.sees_all; slot++)
	{
		Oid			role = atomic_load(&herald_slots[slot].role);

		found.roles[slot] = herald_sees_role(role) ? role : InvalidOid;
	}
	HERALD_STOP_POINT("view-channels");
	herald_channels_attach();
	do
	{
		if (found.rows != NULL)
			pfree(found.rows);
		found.size *= 2;
		found.rows = MemoryContextAllocHuge(CurrentMemoryContext,
											found.size * sizeof(*found.rows));
		found.is_full = false;
		found.used = 0;
		herald_channels_scan(add_channel, &found);
	} while (found.is_full);

	for (int i = 0; i < found.used; i++)
	{
		HeraldRow	row = herald_row_of(result->setDesc);

		herald_row_add(&row, "channel", TEXTOID, CStringGetTextDatum(found.rows[i].name));
		herald_row_add(&row, "listeners", INT8OID, Int64GetDatum(found.rows[i].listeners));
		herald_row_add(&row, "sent", INT8OID, Int64GetDatum(found.rows[i].sent));
		herald_row_add_or_null(&row, "delivered", INT8OID, Int64GetDatum(found.rows[i].delivered),
							   !found.rows[i].all_visible);
		herald_row_add_or_null(&row, "last_sent", TIMESTAMPTZOID,
							   TimestampTzGetDatum(found.rows[i].last_sent),
							   found.rows[i].last_sent == 0);
		herald_row_add(&row, "stats_since", TIMESTAMPTZOID, TimestampTzGetDatum(found.rows[i].since));
		herald_row_store(&row, result);
	}
	return (Datum) 0;
}

/* herald.get_queue() → record.  Positions and sizes in bytes; usage is a fraction. */
Datum
herald_view_queue(PG_FUNCTION_ARGS)
{
	HeraldRow	row = herald_row_only(fcinfo);
	bool		all = herald_sees_all();
	uint64		used = shown_size(queue_used(), all);
	HeraldPosition needed = herald_wakeup_needed(herald_wakeup, herald_queue);
	TimestampTz kept_since = 0;
	bool		is_known;
	uint64		distance = 0;

	herald_row_add(&row, "head", INT8OID, Int64GetDatum(shown_position(atomic_load(&herald_queue->head), all)));
	herald_row_add(&row, "dispatched", INT8OID, Int64GetDatum(shown_position(atomic_load(&herald_queue->dispatched), all)));
	herald_row_add(&row, "needed", INT8OID, Int64GetDatum(shown_position(needed, all)));
	herald_row_add(&row, "tail", INT8OID, Int64GetDatum(shown_position(atomic_load(&herald_queue->tail), all)));
	herald_row_add(&row, "size", INT8OID, UInt64GetDatum(herald_queue->ring_size));
	herald_row_add(&row, "spilled", INT8OID, Int64GetDatum(shown_size(herald_spill_bytes(), all)));
	herald_row_add(&row, "used", INT8OID, UInt64GetDatum(used));
	herald_row_add(&row, "usage", FLOAT8OID, Float8GetDatum(usage(used)));
	herald_row_add(&row, "uncommitted", INT8OID,
				   Int64GetDatum(shown_size(herald_large_table_bytes_open(herald_large_table), all)));
	herald_row_add(&row, "kept_bytes", INT8OID, Int64GetDatum(shown_size(herald_kept_bytes(), all)));
	is_known = herald_kept_begin(&kept_since);
	herald_row_add_or_null(&row, "kept_since", TIMESTAMPTZOID,
						   TimestampTzGetDatum(shown_time(kept_since, all)), !is_known);
	is_known = herald_anchor_distance(&distance);
	herald_row_add_or_null(&row, "anchor_distance", INT8OID, UInt64GetDatum(distance), !is_known);
	herald_row_add(&row, "is_damaged", BOOLOID, BoolGetDatum(herald_shared_is_damaged()));
	return herald_row_datum(&row);
}

/* herald.get_stats() → record: the counters, and the time of the last reset */
Datum
herald_view_stats(PG_FUNCTION_ARGS)
{
	uint64		totals[HERALD_COUNTERS];
	TimestampTz reset_time;
	HeraldRow	row = herald_row_only(fcinfo);

	LWLockAcquire(herald_control->reset_lock, LW_SHARED);
	read_counters(totals);
	for (int i = 0; i < HERALD_COUNTERS; i++)
		totals[i] -= herald_control->reset_counters[i];
	reset_time = herald_control->reset_time;
	LWLockRelease(herald_control->reset_lock);

	/*
	 * Making a Datum can allocate memory, and so may fail: do not do this
	 * under the lock.
	 */
	for (int i = 0; i < HERALD_COUNTERS; i++)
		herald_row_add(&row, counter_names[i], INT8OID, UInt64GetDatum(totals[i]));
	herald_row_add(&row, "stats_reset", TIMESTAMPTZOID, TimestampTzGetDatum(reset_time));
	return herald_row_datum(&row);
}

/*
 * herald.reset_stats() → void
 *
 * Only their own processes write the server-wide counters; so store their current values
 * instead of setting them to zero.
 */
Datum
herald_reset_stats(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();

	herald_channels_attach();
	herald_channels_scan(reset_channel, &now);
	LWLockAcquire(herald_control->reset_lock, LW_EXCLUSIVE);
	read_counters(herald_control->reset_counters);
	herald_control->reset_time = now;
	LWLockRelease(herald_control->reset_lock);
	PG_RETURN_VOID();
}

/*
 * herald.watchdog_pid() → integer; null if there is no watchdog
 */
Datum
herald_watchdog_process(PG_FUNCTION_ARGS)
{
	int			pid = herald_watchdog_pid();

	if (pid == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(pid);
}

/*
 * pg_herald_notification_queue_usage() → float8
 *
 * The used fraction of the fuller queue: ours, or the server's own, which still has the
 * notifications that bypass ours.  Requires the privilege to execute the built-in function.
 */
Datum
herald_pg_notification_queue_usage(PG_FUNCTION_ARGS)
{
	double		server;

	if (object_aclcheck(ProcedureRelationId, F_PG_NOTIFICATION_QUEUE_USAGE, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, "pg_notification_queue_usage");
	server = DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0));
	PG_RETURN_FLOAT8(Max(usage(shown_size(queue_used(), herald_sees_all())), server));
}

static const char *
state_name(uint64 word)
{
	if (herald_lag_has_missed(word))
		return "missed";
	switch ((HeraldListenerState) herald_word_state(word))
	{
		case HERALD_LISTENER_FREE:
			break;
		case HERALD_LISTENER_IDLE:
			return "idle";
		case HERALD_LISTENER_PENDING:
			return "pending";
		case HERALD_LISTENER_SIGNALLED:
			return "signalled";
		case HERALD_LISTENER_PROCESSING:
		case HERALD_LISTENER_AGAIN:
			return "processing";
		case HERALD_LISTENER_BUSY:
		case HERALD_LISTENER_BUSY_PENDING:
			return "busy";
	}
	return "free";
}

/* A session of another role may have taken the slot since its role was looked at. */
static bool
is_visible(uint32 slot, void *arg)
{
	const ChannelRows *found = arg;

	return found->sees_all ||
		(OidIsValid(found->roles[slot]) && atomic_load(&herald_slots[slot].role) == found->roles[slot]);
}

/* Under a lock of the map, so the rows have been allocated before. */
static bool
add_channel(const HeraldChannelInfo *channel, void *arg)
{
	ChannelRows *found = arg;
	HeraldChannelCounters *counters = channel->counters;
	int64		listeners;

	if (channel->database != MyDatabaseId)
		return true;
	listeners = herald_channels_count_listeners(channel, is_visible, found);
	if (listeners == 0)
		return true;

	found->is_full = found->used == found->size;
	if (found->is_full)
		return false;
	strlcpy(found->rows[found->used].name, channel->name, NAMEDATALEN);
	found->rows[found->used].listeners = listeners;
	found->rows[found->used].all_visible = listeners == channel->count;
	found->rows[found->used].sent = atomic_load_explicit(&counters->sent, memory_order_relaxed);
	found->rows[found->used].delivered = atomic_load_explicit(&counters->delivered, memory_order_relaxed);
	found->rows[found->used].last_sent = atomic_load_explicit(&counters->last_sent, memory_order_relaxed);
	found->rows[found->used].since = atomic_load_explicit(&counters->since, memory_order_relaxed);
	found->used++;
	return true;
}

static bool
reset_channel(const HeraldChannelInfo *channel, void *arg)
{
	HeraldChannelCounters *counters = channel->counters;
	TimestampTz *now = arg;

	atomic_store_explicit(&counters->sent, 0, memory_order_relaxed);
	atomic_store_explicit(&counters->delivered, 0, memory_order_relaxed);
	atomic_store_explicit(&counters->last_sent, 0, memory_order_relaxed);
	atomic_store_explicit(&counters->since, *now, memory_order_relaxed);
	return true;
}

static void
read_counters(uint64 *totals)
{
	memset(totals, 0, HERALD_COUNTERS * sizeof(uint64));
	for (uint32 slot = 0; slot < herald_control->slots; slot++)
	{
		for (int i = 0; i < HERALD_COUNTERS; i++)
			totals[i] += atomic_load_explicit(&herald_slots[slot].counters[i],
											  memory_order_relaxed);
	}
}

/* all: for a role that sees all. */
static int64
shown_position(HeraldPosition position, bool all)
{
	return (int64) (all ? position : position & ~(herald_queue->segment_size - 1));
}

/* Something is never shown as nothing. */
static int64
shown_size(uint64 bytes, bool all)
{
	return shown_position(all ? bytes : bytes + herald_queue->segment_size - 1, all);
}

static TimestampTz
shown_time(TimestampTz time, bool all)
{
	return all ? time : time - time % USECS_PER_SEC;
}

/*
 * Bytes that some listener has not read yet, or that wait for their commit, in memory and in
 * files.
 */
static uint64
queue_used(void)
{
	HeraldPosition needed = herald_wakeup_needed(herald_wakeup, herald_queue);

	return atomic_load(&herald_queue->head) - needed + herald_large_table_bytes_from(herald_large_table, needed);
}

/* As a fraction of the queue's maximum size. */
static double
usage(uint64 used)
{
	return (double) used / Max((double) herald_max_queue_size_kb * 1024, herald_queue->ring_size);
}
