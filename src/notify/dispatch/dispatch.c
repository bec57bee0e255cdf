/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  From finished batches to woken listeners.
 *
 * core/sequencer.c decides which process dispatches, and what; here its batches meet the
 * channel map, and the listeners that were marked get their signals, after
 * the dispatch lock has been released [D2].
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/timeout.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/shared.h"
#include "base/waits.h"
#include "base/wake_watchdog.h"
#include "core/sequencer.h"
#include "core/stop_point.h"
#include "notify/channels/channel_map.h"
#include "notify/dispatch/damage.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"

/*
 * Maximum bytes that a committing backend dispatches, its own and others', or as much as costs
 * the same: 131,072 listeners, or 16,384 channels to look up.  The watchdog does the rest: no
 * client waits for it.
 */
#define DISPATCH_BUDGET			(UINT64CONST(1024) * 1024)

/* Cost of looking up a channel, in bytes of the queue that take a dispatcher as long. */
#define COST_OF_LOOKUP			64

/* How many of the channels that were marked in a stretch are remembered; a power of two. */
#define MARKED_CHANNELS			64

/* A channel whose listeners have been marked. */
typedef struct MarkedChannel
{
	HeraldPosition stretch_end; /* in which; in another one they are to be
								 * marked again */
	HeraldChannelKey key;
	uint32		listeners;
	uint64		repeats;		/* notifications since, which are not counted
								 * yet */
	TimestampTz last_sent;		/* commit time of the last of these */
} MarkedChannel;

/* One call of herald_sequencer_run(). */
typedef struct Marking
{
	bool		has_stretch;	/* it has dispatched something */
	HeraldChannelMarks marks;
	uint64		concerned;		/* listeners that a message was for, with
								 * repeats */
	HeraldPosition damaged;		/* the batch with an entry that is not valid;
								 * 0: no such */
} Marking;

/* By the hash of the channel. */
static MarkedChannel marked_channels[MARKED_CHANNELS];

/* Which of them have repeats: a bit for each. */
static uint64 repeated;

StaticAssertDecl(MARKED_CHANNELS <= 64, "a bit for each marked channel");

/* The end of this process's current stretch. */
static HeraldPosition stretch_end;

/* This process is counted in herald_control->dispatch_waiters. */
static bool is_waiting;

static bool dispatch_some(bool *is_left);
static bool run_sequencer(bool *is_left);
static void stretch_begins(HeraldPosition end, void *arg);
static uint64 mark_batch(const HeraldBatchHeader *header, uint32 *offset, uint64 budget, void *arg);
static uint64 mark_entry(const HeraldBatchHeader *header, const HeraldEntry *entry, Marking *marking);
static bool is_key_of(const HeraldChannelKey *key, Oid database, const HeraldEntry *entry);
static void count_repeats(void);
static void mark_database(Oid database, HeraldPosition position, HeraldChannelMarks *marks);
static bool is_settled(HeraldPosition position);
static bool is_not_settled(HeraldPosition position);
static void wait_without_error(bool (*must_wait) (HeraldPosition), HeraldPosition position, uint64 end_ms);
static bool wait_while(bool (*must_wait) (HeraldPosition), HeraldPosition position, uint64 end_ms);
static void announce_wait(void);
static void forget_cancel(void);
static void tell_waiters(void);


void
herald_dispatch_attach(void)
{
	herald_channels_attach();
}

bool
herald_dispatch_run(void)
{
	bool		is_left;

	return dispatch_some(&is_left);
}

/*
 * As herald_dispatch_run().  *is_left: the budget is spent, and the watchdog has been woken for
 * the rest.
 */
static bool
dispatch_some(bool *is_left)
{
	*is_left = false;
	if (herald_shared_is_damaged())
		return false;
	if (run_sequencer(is_left))
		herald_turns_begin();
	return true;
}

/* Dispatch what there is.  True: listeners are to be woken. */
static bool
run_sequencer(bool *is_left)
{
	Marking		marking = {0};
	HeraldSequencerCalls calls = {stretch_begins, mark_batch, &marking};
	HeraldSequencerResult result;

	/* Without the watchdog what is left is ours as well. */
	do
		result = herald_sequencer_run(herald_queue, DISPATCH_BUDGET, &calls);
	while (result == HERALD_SEQUENCER_MORE && !herald_wake_watchdog());
	*is_left = result == HERALD_SEQUENCER_MORE;
	count_repeats();

	/* Whatever we have marked has to be woken all the same. */
	if (marking.damaged != 0)
		herald_damage_found(marking.damaged);
	else if (result == HERALD_SEQUENCER_DAMAGED)
		herald_damage_found(atomic_load(&herald_queue->dispatched));

	HERALD_HOLD_POINT("dispatch-done");
	if (marking.concerned > marking.marks.entered)
		herald_shared_count(HERALD_COUNT_SIGNALS_SAVED, marking.concerned - marking.marks.entered);
	if (marking.marks.entered == 0 && marking.concerned > 0)
	{
		/*
		 * The process that marked them before may be stopped: then the
		 * watchdog wakes them.
		 */
		herald_wake_watchdog_if_asleep();
	}
	if (marking.has_stretch)
		tell_waiters();
	return marking.marks.entered > 0;
}

/*
 * The transaction is committed and the client knows: an error now would say that it is not.  On a
 * stock server a sender waits for earlier ones before its commit, for a lock: so lock_timeout limits
 * this wait as well.
 */
void
herald_dispatch_wait_after_commit(HeraldPosition position)
{
	HERALD_MAY_WAIT();
	if (is_settled(position))
		return;

	herald_disable_transaction_timeout();
	wait_without_error(is_not_settled, position,
					   LockTimeout > 0 ? herald_clock_ms() + LockTimeout : PG_UINT64_MAX);
}

void
herald_dispatch_catch_up(HeraldPosition position)
{
	wait_without_error(herald_dispatch_is_behind, position, herald_clock_ms() + HERALD_SETTLED_WAIT_MS);
}

void
herald_dispatch_wait_before_commit(HeraldPosition position, uint64 limit_ms,
								   HeraldServeInterrupts serve, void *arg)
{
	uint64		end_ms = herald_clock_ms() + limit_ms;

	while (!herald_dispatch_wait_until(position, end_ms) && herald_clock_ms() < end_ms)
		serve(arg);
}

bool
herald_dispatch_wait_until(HeraldPosition position, uint64 end_ms)
{
	return wait_while(is_not_settled, position, end_ms);
}

bool
herald_dispatch_is_behind(HeraldPosition position)
{
	return !is_settled(position) && herald_sequencer_is_under_way(herald_queue);
}

void
herald_dispatch_cancel_wait(void)
{
	if (is_waiting)
		atomic_fetch_sub_explicit(&herald_control->dispatch_waiters, 1, memory_order_seq_cst);
	is_waiting = false;
}

static void
stretch_begins(HeraldPosition end, void *arg)
{
	Marking    *marking = arg;

	stretch_end = end;
	marking->has_stretch = true;
}

/*
 * The queue holds what a sender wrote, so a length that is wrong can only mean
 * that memory was overwritten.  Which listeners the rest of the batch concerns is not known
 * then, so all listeners are notified.
 */
static uint64
mark_batch(const HeraldBatchHeader *header, uint32 *offset, uint64 budget, void *arg)
{
	Marking    *marking = arg;
	uint64		cost = 0;

	do
	{
		const HeraldEntry *entry = (const HeraldEntry *) ((const char *) header + *offset);

		if (!herald_entry_is_valid(entry, header->length - *offset))
		{
			marking->damaged = herald_word_position(header->word);
			*offset = header->length;
			break;
		}
		cost += entry->length + mark_entry(header, entry, marking);
		*offset += entry->length;
	} while (*offset < header->length && cost < budget);
	return cost;
}

/*
 * Returns what it has cost besides the entry's bytes.
 *
 * One mark is enough for the whole stretch, whichever process has made it, because the
 * stretch's end was published before its first mark [W1].  A listener that was PENDING,
 * reading or BUSY looks afterwards how far it may read, and reads to the end of the
 * stretch.  One that was IDLE beyond the mark's position had read up to a published position, and the
 * first of these behind that mark is the end of the stretch.  One that was not in the
 * map yet begins there, or later.
 */
static uint64
mark_entry(const HeraldBatchHeader *header, const HeraldEntry *entry, Marking *marking)
{
	uint32		index = entry->channel_hash % MARKED_CHANNELS;
	MarkedChannel *marked = &marked_channels[index];
	uint64		notifications = herald_entry_notifications(entry);
	uint64		looked_at = marking->marks.looked_at;

	switch ((HeraldEntryKind) entry->kind)
	{
		case HERALD_ENTRY_NOTIFICATION:
		case HERALD_ENTRY_CHANNEL:
			break;
		case HERALD_ENTRY_FILE:
		case HERALD_ENTRY_COMMIT:
			return 0;
		case HERALD_ENTRY_ALL_LISTENERS:
			mark_database(header->database, herald_word_position(header->word), &marking->marks);
			marking->concerned += marking->marks.looked_at - looked_at;
			return (uint64) herald_wakeup->slots * HERALD_COST_OF_MARK;
	}
	if (!is_key_of(&marked->key, header->database, entry))
	{
		if (marked->repeats > 0)
			herald_channels_count(&marked->key, marked->repeats, marked->last_sent);
		marked->repeats = 0;
		herald_channels_key(&marked->key, header->database, entry);
	}
	else if (marked->stretch_end == stretch_end)
	{
		if (marked->listeners == 0)
			return 0;
		marking->concerned += marked->listeners;
		marked->repeats += notifications;
		marked->last_sent = header->commit_time;
		repeated |= UINT64CONST(1) << index;
		return 0;
	}

	/* Also what has repeated in earlier stretches of ours. */
	marked->stretch_end = stretch_end;
	marked->listeners = herald_channels_mark(&marked->key, header, stretch_end, marked->repeats + notifications,
											 &marking->marks);
	marked->repeats = 0;
	marking->concerned += marked->listeners;
	return COST_OF_LOOKUP + (marking->marks.looked_at - looked_at) * HERALD_COST_OF_MARK;
}

static bool
is_key_of(const HeraldChannelKey *key, Oid database, const HeraldEntry *entry)
{
	return key->channel_hash == entry->channel_hash && key->database == database &&
		strcmp(key->name, herald_entry_channel(entry)) == 0;
}

/* Add the repeats of all stretches to the channels' counters, after the dispatch lock is released. */
static void
count_repeats(void)
{
	for (; repeated != 0; repeated &= repeated - 1)
	{
		MarkedChannel *marked = &marked_channels[pg_rightmost_one_pos64(repeated)];

		if (marked->repeats > 0)
			herald_channels_count(&marked->key, marked->repeats, marked->last_sent);
		marked->repeats = 0;
	}
}

/* Mark all listeners of a database. */
static void
mark_database(Oid database, HeraldPosition position, HeraldChannelMarks *marks)
{
	for (uint32 slot = 0; slot < herald_wakeup->slots; slot++)
	{
		if (atomic_load(&herald_slots[slot].pid) == 0 ||
			atomic_load(&herald_slots[slot].database) != database)
			continue;
		marks->entered += herald_wakeup_mark(herald_wakeup, slot, position);
		marks->looked_at++;
	}
}

/* A queue that is switched off dispatches nothing: then there is nothing to wait for. */
static bool
is_settled(HeraldPosition position)
{
	return atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst) >= position ||
		herald_shared_is_damaged();
}

static bool
is_not_settled(HeraldPosition position)
{
	return !is_settled(position);
}

/* A cancel request ends the wait, and is forgotten then. */
static void
wait_without_error(bool (*must_wait) (HeraldPosition), HeraldPosition position, uint64 end_ms)
{
	HOLD_CANCEL_INTERRUPTS();
	while (!wait_while(must_wait, position, end_ms) && herald_clock_ms() < end_ms)
	{
		if (QueryCancelPending)
		{
			forget_cancel();
			break;
		}
		CHECK_FOR_INTERRUPTS();
	}
	RESUME_CANCEL_INTERRUPTS();
}

/* False: it is end_ms (herald_clock_ms()), or an interrupt is to be served. */
static bool
wait_while(bool (*must_wait) (HeraldPosition), HeraldPosition position, uint64 end_ms)
{
	uint64		now_ms;

	HERALD_MAY_WAIT();
	if (!must_wait(position))
		return true;
	announce_wait();
	while ((now_ms = herald_clock_ms()) < end_ms && !InterruptPending)
	{
		bool		is_left;

		/* We have the time, and the watchdog may be waiting for a CPU. */
		(void) dispatch_some(&is_left);
		herald_wait_prepare(HERALD_WAIT_DISPATCH, &herald_control->settled_moved);
		if (!must_wait(position))
			break;
		HERALD_STOP_POINT("await-dispatch");
		if (!is_left && !InterruptPending)
			herald_wait_sleep(HERALD_WAIT_DISPATCH, (long) Min(end_ms - now_ms, INT_MAX));
	}
	herald_wait_end();
	herald_dispatch_cancel_wait();
	return !must_wait(position);
}

/* [D3] Announced before looking: pairs with tell_waiters() */
static void
announce_wait(void)
{
	if (!is_waiting)
		atomic_fetch_add_explicit(&herald_control->dispatch_waiters, 1, memory_order_seq_cst);
	is_waiting = true;
}

/* The next statement must neither be canceled, nor its error name the reason of this one. */
static void
forget_cancel(void)
{
	QueryCancelPending = false;
	(void) get_timeout_indicator(STATEMENT_TIMEOUT, true);
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
}

static void
tell_waiters(void)
{
	/* [D3] after the position has moved: pairs with announce_wait() */
	if (atomic_load_explicit(&herald_control->dispatch_waiters, memory_order_seq_cst) > 0)
		herald_wait_tell(&herald_control->settled_moved);
}
