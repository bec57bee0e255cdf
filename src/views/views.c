/*-------------------------------------------------------------------------
 *
 * views.c
 *	  What the views of schema herald show.
 *
 * A user sees the listeners of roles whose privileges he has, and what they
 * listen to; a member of pg_read_all_stats sees all of them.  Figures that are
 * read while others change them are each right, but need not be of the same
 * moment.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/async.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/bell.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/dispatch/channel_map.h"
#include "notify/storage/large_files.h"
#include "notify/storage/spill.h"
#include "views/visible.h"
#include "watchdog/lag.h"

PG_FUNCTION_INFO_V1(herald_view_listeners);
PG_FUNCTION_INFO_V1(herald_view_channels);
PG_FUNCTION_INFO_V1(herald_view_queue);
PG_FUNCTION_INFO_V1(herald_view_stats);
PG_FUNCTION_INFO_V1(herald_reset_stats);
PG_FUNCTION_INFO_V1(herald_watchdog_process);
PG_FUNCTION_INFO_V1(herald_pg_notification_queue_usage);

#define LISTENERS_COLUMNS	10
#define CHANNELS_COLUMNS	2
#define QUEUE_COLUMNS		10
#define STATS_COLUMNS		(HERALD_COUNTERS + 1)

/* For the channel visitor. */
typedef struct ChannelRows
{
	bool	   *visible;		/* by slot */
	bool		is_full;		/* there were more */
	int			used;
	int			size;
	struct
	{
		char		name[NAMEDATALEN];
		int64		listeners;
	}		   *rows;
} ChannelRows;

static bool sees(uint32 slot);
static const char *state_name(uint64 word);
static bool add_channel(const HeraldChannelInfo *channel, void *arg);
static void read_counters(uint64 *totals);
static uint64 queue_used(void);
static double usage(uint64 used);
static Datum row(FunctionCallInfo fcinfo, Datum *values, bool *nulls);


/*
 * herald.get_listeners() → setof record: pid, datid, role, state, channels,
 * pending_bytes, pending_since, lagging_since, delivered, wakeups
 */
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
		Datum		values[LISTENERS_COLUMNS] = {0};
		bool		nulls[LISTENERS_COLUMNS] = {0};
		TimestampTz pending_since = 0;
		TimestampTz lagging_since = atomic_load(&listener->lagging_since);

		if (herald_word_state(word) == HERALD_LISTENER_FREE || !(all || sees(slot)))
			continue;

		values[0] = Int32GetDatum(atomic_load(&listener->pid));
		values[1] = ObjectIdGetDatum(atomic_load(&listener->database));
		values[2] = ObjectIdGetDatum(atomic_load(&listener->role));
		values[3] = CStringGetTextDatum(state_name(word));
		values[4] = Int32GetDatum(atomic_load(&listener->channels));
		values[5] = Int64GetDatum(herald_lag_bytes(word));
		nulls[6] = !herald_lag_since(word, &pending_since);
		values[6] = TimestampTzGetDatum(pending_since);
		nulls[7] = lagging_since == 0;
		values[7] = TimestampTzGetDatum(lagging_since);
		values[8] = Int64GetDatum(atomic_load(&listener->delivered));
		values[9] = Int64GetDatum(atomic_load(&listener->wakeups));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * herald.get_channels() → setof record: channel, listeners
 *
 * Of the current database; names elsewhere may be in another encoding.
 */
Datum
herald_view_channels(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ChannelRows found = {.size = 512};
	bool		all = herald_sees_all();

	/*
	 * The scan holds locks of the map: what needs catalogs or memory is done
	 * before it, and what may write to disk after it.
	 */
	found.visible = palloc(herald_wakeup->slots * sizeof(bool));
	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
		found.visible[slot] = all || sees(slot);
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

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < found.used; i++)
	{
		Datum		values[CHANNELS_COLUMNS];
		bool		nulls[CHANNELS_COLUMNS] = {0};

		values[0] = CStringGetTextDatum(found.rows[i].name);
		values[1] = Int64GetDatum(found.rows[i].listeners);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * herald.get_queue() → record: head, dispatched, needed, tail, size, spilled, used,
 * usage, uncommitted, is_damaged.  Positions and sizes in bytes; usage is a fraction.
 */
Datum
herald_view_queue(PG_FUNCTION_ARGS)
{
	Datum		values[QUEUE_COLUMNS];
	bool		nulls[QUEUE_COLUMNS] = {0};
	uint64		used = queue_used();

	values[0] = Int64GetDatum(atomic_load(&herald_queue->head));
	values[1] = Int64GetDatum(atomic_load(&herald_queue->dispatched));
	values[2] = Int64GetDatum(herald_wakeup_needed(herald_wakeup, herald_queue));
	values[3] = Int64GetDatum(atomic_load(&herald_queue->tail));
	values[4] = Int64GetDatum(herald_queue->ring_size);
	values[5] = Int64GetDatum(herald_spill_bytes());
	values[6] = Int64GetDatum(used);
	values[7] = Float8GetDatum(usage(used));
	values[8] = Int64GetDatum(herald_large_files_bytes_open());
	values[9] = BoolGetDatum(herald_shared_is_damaged());
	return row(fcinfo, values, nulls);
}

/*
 * herald.get_stats() → record: the counters in the order of HeraldCounter,
 * then the time of the last reset
 */
Datum
herald_view_stats(PG_FUNCTION_ARGS)
{
	uint64		totals[HERALD_COUNTERS];
	TimestampTz reset_time;
	Datum		values[STATS_COLUMNS];
	bool		nulls[STATS_COLUMNS] = {0};

	LWLockAcquire(herald_control->reset_lock, LW_SHARED);
	read_counters(totals);
	for (int i = 0; i < HERALD_COUNTERS; i++)
		totals[i] -= herald_control->reset_counters[i];
	reset_time = herald_control->reset_time;
	LWLockRelease(herald_control->reset_lock);

	/* A Datum can need memory, and so may fail: not under the lock. */
	for (int i = 0; i < HERALD_COUNTERS; i++)
		values[i] = Int64GetDatum(totals[i]);
	values[HERALD_COUNTERS] = TimestampTzGetDatum(reset_time);
	return row(fcinfo, values, nulls);
}

/*
 * herald.reset_stats() → void
 *
 * The counters themselves belong to their processes; remember what they stood
 * at instead.
 */
Datum
herald_reset_stats(PG_FUNCTION_ARGS)
{
	LWLockAcquire(herald_control->reset_lock, LW_EXCLUSIVE);
	read_counters(herald_control->reset_counters);
	herald_control->reset_time = GetCurrentTimestamp();
	LWLockRelease(herald_control->reset_lock);
	PG_RETURN_VOID();
}

/*
 * herald.watchdog_pid() → integer; null if there is no watchdog
 */
Datum
herald_watchdog_process(PG_FUNCTION_ARGS)
{
	int			pid = herald_bell_watchdog_pid();

	if (pid == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(pid);
}

/*
 * herald.pg_notification_queue_usage() → float8
 *
 * The fuller of the two queues, as a fraction: ours, or the server's own,
 * where notifications still go that pass us by.
 */
Datum
herald_pg_notification_queue_usage(PG_FUNCTION_ARGS)
{
	double		ours = usage(queue_used());
	double		server = DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage,
															(Datum) 0));

	PG_RETURN_FLOAT8(Max(ours, server));
}

static bool
sees(uint32 slot)
{
	return herald_sees_role(atomic_load(&herald_slots[slot].role));
}

static const char *
state_name(uint64 word)
{
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

/* Under a lock of the map: the rows have their memory already. */
static bool
add_channel(const HeraldChannelInfo *channel, void *arg)
{
	ChannelRows *found = arg;
	int64		listeners = 0;

	if (channel->database != MyDatabaseId)
		return true;
	for (uint32 i = 0; i < channel->count; i++)
		listeners += found->visible[channel->slots[i]];
	if (listeners == 0)
		return true;

	found->is_full = found->used == found->size;
	if (found->is_full)
		return false;
	strlcpy(found->rows[found->used].name, channel->name, NAMEDATALEN);
	found->rows[found->used].listeners = listeners;
	found->used++;
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

/* Bytes that some listener has yet to read, or that await their commit; all those in files too. */
static uint64
queue_used(void)
{
	HeraldPosition needed = herald_wakeup_needed(herald_wakeup, herald_queue);

	return atomic_load(&herald_queue->head) - needed + herald_large_files_bytes();
}

/* As a fraction of all that the queue can hold. */
static double
usage(uint64 used)
{
	return (double) used / Max((double) herald_max_queue_size_kb * 1024, herald_queue->ring_size);
}

static Datum
row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	descriptor;

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
}
