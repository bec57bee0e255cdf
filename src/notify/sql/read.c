/*-------------------------------------------------------------------------
 *
 * read.c
 *	  herald.read(): notifications as rows, for clients that cannot keep a session open.
 *
 * Until it waits, a call does not hold notifications in the queue.  Instead, like every reader of the queue, the call
 * copies a chunk, and then checks that the chunk was not overwritten meanwhile.  If notifications no longer exist in
 * the queue, a call whose channels are all logged reads the WAL instead.  If the notifications cannot be read from the
 * WAL either, the call throws an error.
 *
 * While a call waits, its session is a listener of the channels like any other listener: the session is marked, gets a
 * turn and a signal, and does not poll the queue.  In a session that already listens, a call cannot wait, because the
 * session's listener word (core/listener_word.h) is needed for the delivery after the statement.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/client.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/queue_reader.h"
#include "core/stop_point.h"
#include "notify/channels/channel_map.h"
#include "notify/cursor/cursor.h"
#include "notify/cursor/wal_source.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/position_channel.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/bypass.h"
#include "notify/position/gone.h"
#include "notify/position/kept.h"
#include "notify/position/token.h"
#include "notify/relay/conflict.h"
#include "notify/relay/relay.h"
#include "notify/sender/notify.h"
#include "notify/settings/channel_settings.h"
#include "notify/sql/read_row.h"
#include "notify/storage/large_reader.h"
#include "notify/storage/spill.h"

PG_FUNCTION_INFO_V1(herald_read);
PG_FUNCTION_INFO_V1(herald_read_channels);

#define BUFFER_SIZE		((size_t) 64 * 1024)

/*
 * Upper limit of max_rows for a call that waits; the next call returns the remaining rows.  The limit is needed since
 * many sessions may be woken at once, and each session must wait while the others use the CPU for their rows.
 */
#define ROWS_AFTER_WAIT	1000

/* The state of one call. */
typedef struct ReadCall
{
	HeraldChannelName *channels;	/* sorted by hash */
	int			channels_used;
	HeraldChannelSets sets;
	int			rows_max;
	ReturnSetInfo *result;

	HeraldToken given;			/* the position after which the call reads */
	HeraldCursor cursor;		/* at the end of the last transaction that was
								 * read completely */
	bool		all_logged;		/* all channels of the call are logged; always
								 * false if the argument `after` is null */
	bool		is_lost;		/* the next notifications are not in the queue
								 * any more, but may be in the WAL */
	HeraldPosition from;		/* the place where this call begins to read
								 * the queue */
	uint32		bypasses;		/* number of bypasses that are treated as
								 * earlier than `from`; see HeraldToken */
	char		text[HERALD_TOKEN_MAX + 1]; /* the position for the next
											 * stored row, as text; empty: not
											 * composed yet */
	HeraldPosition batch;		/* place of the current batch */
	HeraldCommitId commit;		/* commit of the current batch */
	HeraldTokenHash *hash;
	char	   *buffer;
	size_t		buffer_size;
	int			rows;			/* number of rows found so far */
	bool		is_within;		/* the last row's transaction may have more
								 * rows */
	HeraldReadRow row;			/* the last row */
} ReadCall;

/* The current call, for the callback is_on_channel(), which has no argument for the call. */
static const ReadCall *reading_now;

static Datum read_channels(FunctionCallInfo fcinfo, ReadCall *reading);
static void add_channel(ReadCall *reading, const char *name);
static int	compare_hashes(const void *one, const void *other);
static bool is_past_queue(const ReadCall *reading);
static uint64 wait_ms(FunctionCallInfo fcinfo, int argument);
static void forget_rows(ReadCall *reading);
static void begin_now(ReadCall *reading);
static void begin(ReadCall *reading);
static void note_begin(ReadCall *reading);
static HeraldGone keep(HeraldPosition place, uint32 bypasses, bool all_logged, void *reading);
static bool read_past(ReadCall *reading);
static bool has_enough(const ReadCall *reading);
static void end_transaction(ReadCall *reading);
static bool must_call_again(const ReadCall *reading);
static void read_on(ReadCall *reading);
static bool is_on_channel(const HeraldEntry *entry, HeraldPosition batch);
static void pass(ReadCall *reading, const HeraldMessage *message);
static void pass_batch(ReadCall *reading, HeraldPosition next);
static void check_queue(void);
static void keep_row(ReadCall *reading, const HeraldEntry *entry, HeraldSender sender, TimestampTz committed_at);
static void store_row(ReadCall *reading);
static const char *position_text(ReadCall *reading);
static void wait_and_read(ReadCall *reading, uint64 deadline_ms);
static bool wait_for_turn(HeraldPosition begin, uint64 deadline_ms);
static void rest(long timeout_ms);
static void read_in_turn(ReadCall *reading);
static void skip_to(ReadCall *reading, HeraldPosition position);


/*
 * herald.read(channel text, after text, max_rows int, wait interval)
 *   → setof (position text, channel text, payload text, pid int, committed_at timestamptz, xid xid8, sender name)
 *
 * Returns the notifications that were sent on the channel after the position `after` (null: the beginning of this
 * call), up to the end of the transaction that sent row number max_rows.  If there are no notifications, waits for the
 * time "wait" at most.  The wait ends early if the queue has advanced by a segment, or, on a standby, if replay waits
 * for queries.  If there are still no notifications, returns one row with only a position.  Each position is the end of
 * a transaction.  If more rows of the row's transaction follow, a row's position is the end of the previous
 * transaction; otherwise the end of the row's transaction, or of a later one without rows.  Throws 55000 if some
 * notifications after `after` can no longer be read.
 */
Datum
herald_read(PG_FUNCTION_ARGS)
{
	ReadCall	reading = {0};

	InitMaterializedSRF(fcinfo, 0); /* called first, since it looks up the
									 * function herald.read(), which another
									 * session's DROP EXTENSION can remove
									 * during the call */
	reading.channels = palloc(sizeof(HeraldChannelName));
	add_channel(&reading, PG_ARGISNULL(0) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(0)));
	return read_channels(fcinfo, &reading);
}

/*
 * herald.read(channels text[], after text, max_rows int, wait interval) → setof the same columns
 *
 * Does the same as herald.read() with one channel, but for several channels.  The rows are in the order in which the
 * notifications were sent.
 */
Datum
herald_read_channels(PG_FUNCTION_ARGS)
{
	ReadCall	reading = {0};
	Datum	   *names;
	bool	   *nulls;
	int			count = 0;

	InitMaterializedSRF(fcinfo, 0);
	if (!PG_ARGISNULL(0))
		deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, TYPALIGN_INT, &names, &nulls, &count);
	if (count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("at least one channel must be given")));
	reading.channels = palloc_array(HeraldChannelName, count);
	for (int i = 0; i < count; i++)
		add_channel(&reading, nulls[i] ? "" : TextDatumGetCString(names[i]));
	qsort(reading.channels, count, sizeof(HeraldChannelName), compare_hashes);
	return read_channels(fcinfo, &reading);
}

static void
add_channel(ReadCall *reading, const char *name)
{
	HeraldChannelName *channel = &reading->channels[reading->channels_used++];

	herald_check_channel(strlen(name));
	herald_check_channel_here(name, "herald.read()");
	*channel = herald_channel_name(name);
	reading->sets |= herald_channel_set(channel->hash);
}

static int
compare_hashes(const void *one, const void *other)
{
	uint32		a = ((const HeraldChannelName *) one)->hash;
	uint32		b = ((const HeraldChannelName *) other)->hash;

	return a < b ? -1 : a > b;
}

static Datum
read_channels(FunctionCallInfo fcinfo, ReadCall *reading)
{
	uint64		begin_ms = herald_clock_ms();
	uint64		waits_ms = wait_ms(fcinfo, 3);

	if (waits_ms > 0 && herald_session_is_listener())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("herald.read() cannot wait in a session that listens"),
				 errhint("Set \"wait\" to 0, or call the function in another session.")));
	reading->rows_max = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT32(2);
	if (reading->rows_max < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be at least 1")));

	check_queue();
	reading_now = reading;
	if (PG_ARGISNULL(1))
		begin_now(reading);
	else
	{
		HeraldGone	gone = herald_token_read(text_to_cstring(PG_GETARG_TEXT_PP(1)), &reading->given);

		if (herald_is_gone(gone))
			herald_gone_report(gone);
		begin(reading);
	}

	reading->result = (ReturnSetInfo *) fcinfo->resultinfo;
	reading->hash = herald_token_hash_open();
	reading->buffer_size = BUFFER_SIZE;
	reading->buffer = palloc(reading->buffer_size);
	herald_read_row_begin(&reading->row);
	if (read_past(reading))
		read_on(reading);
	if (reading->is_lost)
	{
		forget_rows(reading);
		begin(reading);
		if (read_past(reading))
			read_on(reading);
	}
	if (reading->rows == 0 && waits_ms > 0 && !is_past_queue(reading))
		wait_and_read(reading, begin_ms + waits_ms);

	/*
	 * The rows are complete if no visible transaction has bypassed the queue
	 * after reading->from.  So first wait until all visible bypasses are
	 * counted.
	 */
	herald_bypass_await_counting();
	if (is_past_queue(reading))
		herald_gone_report(herald_gone(HERALD_GONE_PAST_QUEUE));

	if (must_call_again(reading))
	{
		forget_rows(reading);
		herald_token_write(reading->hash, &reading->given, reading->text);
	}
	store_row(reading);
	herald_cursor_close_past(&reading->cursor);
	herald_token_hash_close(reading->hash);
	return (Datum) 0;
}

static void
forget_rows(ReadCall *reading)
{
	tuplestore_clear(reading->result->setResult);
	herald_read_row_clear(&reading->row);
	reading->rows = 0;
	reading->is_within = false;
}

static void
begin_now(ReadCall *reading)
{
	herald_cursor_prepare();
	herald_cursor_begin(&reading->cursor);
	reading->given = herald_cursor_position(&reading->cursor);
	note_begin(reading);
}

/* Begin after the caller's position.  If is_lost is set, do not try the queue, which has lost the next notifications. */
static void
begin(ReadCall *reading)
{
	HeraldCursorRequest request = {
		.after = &reading->given,.channels = reading->channels,.channels_used = reading->channels_used,
		.is_alone = true,.queue_has_lost = reading->is_lost,.keep = keep,.arg = reading,
		.wants = is_on_channel,.wanted_max = reading->rows_max
	};
	bool		in_past;
	HeraldGone	gone;

	memset(&reading->cursor, 0, sizeof(reading->cursor));
	gone = herald_cursor_open(&reading->cursor, &request, &in_past);
	if (herald_is_gone(gone))
		herald_gone_report(gone);
	reading->is_lost = false;
	note_begin(reading);
}

static void
note_begin(ReadCall *reading)
{
	reading->from = reading->batch = reading->cursor.at.place;
	reading->bypasses = reading->cursor.at.bypasses;
	reading->text[0] = '\0';
}

/* Callback of herald_cursor_open().  Does not hold the queue, since the reader checks each chunk after copying it. */
static HeraldGone
keep(HeraldPosition place, uint32 bypasses, bool all_logged, void *reading)
{
	((ReadCall *) reading)->all_logged = all_logged;
	return place < herald_spill_kept_from() ? herald_kept_why_gone(place) : herald_gone(HERALD_GONE_NOTHING);
}

/*
 * Must the client call again, from the same position?  Returns true if the queue may lack notifications after
 * reading->from: because the relay may have left some out (perhaps only on other channels), or because the queue has
 * lost some since the call began.  The next call reads the WAL, which may have these notifications.
 */
static bool
must_call_again(const ReadCall *reading)
{
	return reading->is_lost || !herald_relay_covers(reading->from, true);
}

/* Read the cursor's notifications from the WAL, if there are any.  Returns false as soon as has_enough() is true. */
static bool
read_past(ReadCall *reading)
{
	HeraldPast	past;

	while (herald_cursor_next_past(&reading->cursor, &past))
	{
		CHECK_FOR_INTERRUPTS();
		if (past.entry != NULL)
		{
			if (is_on_channel(past.entry, 0))
				keep_row(reading, past.entry, past.sender, past.committed_at);
			continue;
		}
		end_transaction(reading);
		if (has_enough(reading))
			return false;		/* do not read the queue yet: the source may
								 * have only the WAL up to this transaction */
	}
	end_transaction(reading);
	return true;
}

/* Are there at least rows_max rows, and is the transaction of the last row complete? */
static bool
has_enough(const ReadCall *reading)
{
	return reading->rows >= reading->rows_max && !reading->is_within;
}

/*
 * The cursor is now at the end of a transaction.  The cursor's position has changed, so drop the text of the previous
 * position.
 */
static void
end_transaction(ReadCall *reading)
{
	reading->text[0] = '\0';
	reading->is_within = false;
}

/*
 * Has a transaction bypassed our queue after reading->from, on one of the call's channels or on another channel of the
 * same sets?  Finds only transactions that have been counted.
 */
static bool
is_past_queue(const ReadCall *reading)
{
	return herald_bypass_since(reading->bypasses,
							   herald_bypass_sets(reading->sets, reading->all_logged, reading->from));
}

/* Returns the argument "wait" in milliseconds: 0 for null; at most herald.max_read_wait. */
static uint64
wait_ms(FunctionCallInfo fcinfo, int argument)
{
	double		ms = PG_ARGISNULL(argument) ? 0 :
		1000 * DatumGetFloat8(DirectFunctionCall2(interval_part, CStringGetTextDatum("epoch"), PG_GETARG_DATUM(argument)));

	if (ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wait must not be negative")));
	return (uint64) Min(ms, (double) herald_max_read_wait_ms);
}

/*
 * Read the queue from the cursor's place to the end of the dispatched part, or until has_enough() is true.  If the next
 * notifications are lost, returns if there are rows, and all of their transactions are complete.  Otherwise sets
 * is_lost if the WAL may have the notifications, or throws.
 */
static void
read_on(ReadCall *reading)
{
	HeraldPosition end = atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst);
	HeraldReader reader;
	HeraldMessage message;
	HeraldReadResult result;
	bool		is_gap;

	check_queue();
	if (reading->cursor.at.place >= end)
		return;

	herald_reader_begin(&reader, herald_queue, MyDatabaseId, reading->cursor.at.place, end,
						reading->buffer, reading->buffer_size);
	herald_reader_use_spilled(&reader, herald_spill_read);
	herald_reader_use_files(&reader, herald_large_reader_read, is_on_channel);
	while ((result = herald_reader_next(&reader, &message)) != HERALD_READ_END)
	{
		switch (result)
		{
			case HERALD_READ_MESSAGE:
				pass(reading, &message);
				if (!is_on_channel(message.entry, message.batch))
					continue;
				if (has_enough(reading))
					return;
				keep_row(reading, message.entry, message.sender, message.commit_time);
				continue;
			case HERALD_READ_REFILLED:
				CHECK_FOR_INTERRUPTS();

				/*
				 * Give the turn back, since reading much data takes long, and
				 * needs no turn.
				 */
				if (reader.bytes_read >= HERALD_TURN_BYTES)
					herald_turns_give_back();
				continue;
			case HERALD_READ_ROOM:
				reading->buffer_size = reader.room_needed;
				reading->buffer = repalloc_huge(reading->buffer, reading->buffer_size);
				herald_reader_set_buffer(&reader, reading->buffer, reading->buffer_size);
				continue;
			case HERALD_READ_LAPPED:
				if (reader.checkpoint != reading->batch)
					pass_batch(reading, reader.checkpoint);

				/*
				 * If all transactions of the rows are complete, return the
				 * rows; the next call meets the loss again.
				 */
				if (reading->rows > 0 && !reading->is_within)
					return;
				is_gap = reader.in_file && reader.file == HERALD_GAP_FILE;
				reading->is_lost = reading->all_logged && !is_gap;
				if (reading->is_lost || (is_gap && !herald_relay_covers(reading->from, true)))
					return;
				herald_gone_report(is_gap ? herald_gone(HERALD_GONE_UNLOGGED) :
								   herald_kept_why_gone(reading->cursor.at.place));
			case HERALD_READ_DAMAGED:
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("the notification queue of pg_herald is damaged at position %llu",
								(unsigned long long) reader.position)));
			case HERALD_READ_END:
				break;
		}
	}
	pass_batch(reading, end);
}

/* Note the batch and the commit of a message on any channel. */
static void
pass(ReadCall *reading, const HeraldMessage *message)
{
	if (message->batch != reading->batch)
		pass_batch(reading, message->batch);
	reading->commit = message->commit;
}

/* The current batch has ended; the next batch begins at `next` or later. */
static void
pass_batch(ReadCall *reading, HeraldPosition next)
{
	herald_cursor_receive(&reading->cursor, reading->commit);
	reading->cursor.at.place = next;
	end_transaction(reading);
	reading->batch = next;
	memset(&reading->commit, 0, sizeof(reading->commit));
}

static void
check_queue(void)
{
	if (herald_shared_is_damaged())
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the notification queue of pg_herald is damaged, and was switched off")));
}

/* A HeraldListensTo: is the entry on one of the channels of the current call? */
static bool
is_on_channel(const HeraldEntry *entry, HeraldPosition batch)
{
	int			low = 0;
	int			high = reading_now->channels_used;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (reading_now->channels[middle].hash < entry->channel_hash)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < reading_now->channels_used && reading_now->channels[low].hash == entry->channel_hash; low++)
		if (strcmp(reading_now->channels[low].name, herald_entry_channel(entry)) == 0)
			return true;
	return false;
}

/*
 * Store the previous row, and keep this row until the next row comes or the call ends.  Only then is the row's position
 * known: the end of the last transaction that was read completely.  If the next row is of the same transaction, the
 * position is the end of the previous transaction.  Otherwise the position is the end of the row's transaction or,
 * since a later position stays valid for longer, of a later transaction without rows.
 */
static void
keep_row(ReadCall *reading, const HeraldEntry *entry, HeraldSender sender, TimestampTz committed_at)
{
	if (reading->rows > 0)
		store_row(reading);
	else
	{
		/*
		 * Give the turn back, if this session has one, since storing rows
		 * takes long, and needs no turn.
		 */
		herald_turns_give_back();
	}
	herald_read_row_set(&reading->row, entry, sender, committed_at);
	reading->rows++;
	reading->is_within = true;
}

/*
 * Store the last row.  If there is no row, store a row with only a position, since notifications on other channels
 * make the caller's position old.
 */
static void
store_row(ReadCall *reading)
{
	herald_read_row_store(&reading->row, position_text(reading), reading->result);
}

static const char *
position_text(ReadCall *reading)
{
	HeraldToken token;

	if (reading->text[0] == '\0')
	{
		token = herald_cursor_position(&reading->cursor);
		herald_token_write(reading->hash, &token, reading->text);
	}
	return reading->text;
}

static void
wait_and_read(ReadCall *reading, uint64 deadline_ms)
{
	uint32		slot = herald_shared_my_slot();

	reading->rows_max = Min(reading->rows_max, ROWS_AFTER_WAIT);
	PG_TRY();
	{
		herald_subscriptions_watch(reading->channels, reading->channels_used);
		HERALD_STOP_POINT("read-watches");

		/*
		 * [W1] Like herald_subscriptions_prepare(), load `dispatched` (in
		 * read_on()) only after this session has entered the channel map.  So
		 * the dispatcher of a batch for these channels that is published
		 * after the load marks this session.
		 */
		read_on(reading);
		herald_position_channel_note(reading->from);
		(void) herald_wakeup_rest(herald_wakeup, slot);
		while (reading->rows == 0 && !must_call_again(reading) && wait_for_turn(reading->from, deadline_ms))
			read_in_turn(reading);
		if (reading->rows == 0)
			skip_to(reading, herald_wakeup_has_read(herald_wakeup, herald_queue, slot));
	}
	PG_FINALLY();
	{
		herald_subscriptions_unwatch();
	}
	PG_END_TRY();
}

/*
 * Wait until this session is signalled.  Returns false if the deadline has passed, the position `begin` has become old,
 * or replay waits for queries.
 */
static bool
wait_for_turn(HeraldPosition begin, uint64 deadline_ms)
{
	uint32		slot = herald_shared_my_slot();
	HeraldListenerWord *word = herald_wakeup_word(herald_wakeup, slot);
	uint64		begin_ms = herald_clock_ms();
	bool		conflicts = false;

	for (;;)
	{
		uint64		now_ms = herald_clock_ms();

		if (herald_word_state(atomic_load(word)) == HERALD_LISTENER_SIGNALLED)
			return true;
		if (conflicts || now_ms >= deadline_ms ||
			herald_position_channel_is_old(begin, herald_wakeup_has_read(herald_wakeup, herald_queue, slot)))
			return false;
		(void) herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY);
		rest(herald_conflict_pause(begin_ms, now_ms, deadline_ms));
		conflicts = herald_conflict_ends_wait(begin_ms);
	}
}

/* Wait until the latch is set, for timeout_ms at most.  Ends the session if the client has closed the connection. */
static void
rest(long timeout_ms)
{
	int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
	int			happened;

	HERALD_MAY_WAIT();
	if (MyProcPort != NULL && WaitEventSetCanReportClosed())
		events |= WL_SOCKET_CLOSED;
	happened = WaitLatchOrSocket(MyLatch, events,
								 MyProcPort != NULL ? MyProcPort->sock : PGINVALID_SOCKET,
								 timeout_ms, herald_wait(HERALD_WAIT_NOTIFICATION));
	if (happened & WL_LATCH_SET)
		ResetLatch(MyLatch);
	check_queue();
	if (happened & WL_SOCKET_CLOSED)
		ClientConnectionLost = InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

/* Read the queue in a turn, as herald_deliver() does. */
static void
read_in_turn(ReadCall *reading)
{
	uint32		slot = herald_shared_my_slot();
	HeraldPosition from;
	HeraldPosition to;

	(void) herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY);
	if (herald_wakeup_begin(herald_wakeup, herald_queue, slot, &from, &to))
	{
		skip_to(reading, from);
		do
			read_on(reading);
		while (reading->rows == 0 && !herald_wakeup_finish(herald_wakeup, herald_queue, slot, &to));
	}
	(void) herald_wakeup_yield(herald_wakeup, slot);
	herald_turns_pump();
}

/* Skip the part of the queue before `position`: it has no messages for this call, and may no longer exist. */
static void
skip_to(ReadCall *reading, HeraldPosition position)
{
	if (reading->cursor.at.place < position)
		pass_batch(reading, position);
}
