/*-------------------------------------------------------------------------
 *
 * deliver.c
 *	  Delivers messages to the client: from the queue, and before that from the past that a channel resumes with.
 *
 * Runs in the empty transaction that the server runs in an idle backend when it is signalled.
 * Reads the queue from our first pending position to the dispatched one, sends the messages on
 * our channels, and passes the turn on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/snapmgr.h"

#include "base/client.h"
#include "base/compat.h"
#include "base/own_channels.h"
#include "base/shared.h"
#include "core/queue_reader.h"
#include "core/stop_point.h"
#include "notify/cursor/cursor.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/deliver.h"
#include "notify/listener/frames.h"
#include "notify/listener/heartbeat.h"
#include "notify/listener/moderation.h"
#include "notify/listener/position_channel.h"
#include "notify/listener/read_buffer.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/position/bypass.h"
#include "notify/storage/large_reader.h"
#include "notify/storage/spill.h"

/*
 * Maximum number of rounds in one pass, each for messages that arrived during the previous
 * one; then our output must be sent, and other listeners get the turn.
 */
#define ROUNDS_MAX		4

/*
 * A delivery sends the client its position each time after this number of notifications, so
 * that a client that reconnects need not receive them again.
 */
#define TELL_EVERY		1000

/*
 * Converting a message to the client's encoding takes this number of times as long as sending
 * it unchanged.
 */
#define CONVERSION_COST	4

/* The word keeps its position, whatever we read: see herald_deliver_earlier(). */
static bool keeps_place;

/* The present delivery still owes the session's position. */
static bool owes_position;

static void serve_interrupts(void *arg);
static void send_past(void);
static HeraldPosition await_dispatch(void);
static bool has_missed(const HeraldDelivery *owed);
static void begin_reading(HeraldReader *reader, HeraldPosition from, HeraldPosition to);
static bool read_and_send(HeraldPosition from, HeraldPosition to, HeraldPosition own_batch);
static bool is_alone(const HeraldReader *reader, HeraldPosition from);
static bool read_on(HeraldReader *reader, HeraldPosition *to, HeraldPosition own_batch,
					bool send_as_is);
static void count_delivered(HeraldChannelCounters *counters, uint64 *n);
static void advance(HeraldPosition position);
static bool beats(void);
static void tell_position(HeraldPosition place);
static void send_entry(const HeraldEntry *entry, bool as_is);
static void make_room(HeraldReader *reader);
static void tell_overrun(HeraldReader *reader, HeraldPosition *to);
static void tell_missed(HeraldReader *reader, HeraldPosition *to, const char *detail);
static void report_missed(const char *detail);
herald_noreturn static void report_damage(const HeraldReader *reader);
static bool can_send_as_is(void);


void
herald_deliver(void)
{
	uint32		slot = herald_shared_my_slot();
	bool		is_requested = herald_session_owed()->is_requested;
	bool		save_exit_on_any_error = ExitOnAnyError;
	bool		at_rest = false;
	HeraldDelivery owed;
	HeraldPosition own_batch;
	HeraldPosition position;
	HeraldPosition from;
	HeraldPosition to;

	HERALD_STOP_POINT("deliver-called");
	herald_session_hears_natively();

	/*
	 * The server also runs empty transactions for its own purposes, and does
	 * not flush after those.  If one of our signals is pending, it flushes
	 * after the empty transaction that it runs, or is about to run, for that
	 * signal.
	 */
	if (herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY) == 0 && !is_requested)
		return;
	HERALD_STOP_POINT("deliver-begin");
	own_batch = await_dispatch();
	ExitOnAnyError = true;		/* what is owed would be lost */
	owed = herald_session_take_owed();
	owes_position = owed.sends_position;
	if (has_missed(&owed))
		report_missed("While this session resumed a channel, some went through the server's own queue, or were not logged.");

	if (owed.has_past)
		send_past();
	if (herald_wakeup_begin(herald_wakeup, herald_queue, slot, &from, &to))
	{
		herald_moderation_begin(owed.follows_statement);
		HERALD_FAULT_POINT("deliver-read");
		at_rest = read_and_send(from, to, own_batch);
	}
	position = herald_wakeup_has_read(herald_wakeup, herald_queue, slot);
	if (owes_position || herald_position_channel_is_due(slot, position) || beats())
		tell_position(position);
	ExitOnAnyError = save_exit_on_any_error;
	HERALD_HOLD_POINT("deliver-done");
	(void) herald_wakeup_yield(herald_wakeup, slot);
	HERALD_HOLD_POINT("turn-given-back");
	if (at_rest)
		herald_turns_pump_at_rest();
	else
		herald_turns_pump();
}

/*
 * A stock server delivers such messages before the first statement of the transaction: the
 * backend was idle before that, and signalled.  We may not have had a turn yet, and after the
 * commit the channel is gone.  A notification whose commit has been answered may also be
 * behind a batch that is still committing: we wait for that too, but at most for a second.
 *
 * The word stays BUSY_PENDING and its position moves, unless the transaction holds messages
 * for a channel that will resume.
 */
void
herald_deliver_earlier(void)
{
	bool		save_exit_on_any_error = ExitOnAnyError;
	HeraldPosition to = herald_session_began_at();
	HeraldPosition settled;
	HeraldReader reader;
	uint64		word;

	if (!herald_session_is_listener() || to == 0)
		return;

	herald_dispatch_wait_before_commit(to, HERALD_COMMIT_WAIT_MS, serve_interrupts, NULL);
	settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	to = Min(to, settled);
	word = herald_shared_my_word();
	if (!herald_listener_is_pending(word) || herald_word_position(word) >= to)
		return;

	ExitOnAnyError = true;
	keeps_place = herald_subscriptions_are_held();
	begin_reading(&reader, herald_word_position(word), to);
	(void) read_on(&reader, &to, to, can_send_as_is());
	advance(to);
	if (keeps_place)
		herald_subscriptions_pass(to);
	keeps_place = false;
	herald_read_buffer_shrink(HERALD_TURN_BYTES);
	ExitOnAnyError = save_exit_on_any_error;
}

static void
serve_interrupts(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

/*
 * Batches of other sessions may have to be dispatched first.  Our word is BUSY meanwhile: we
 * could not use a turn.  After an error the client does not wait any more.  Returns the end of
 * this session's own batch; 0: there is none.
 */
static HeraldPosition
await_dispatch(void)
{
	HeraldDelivery *owed = herald_session_owed();
	HeraldPosition own_batch = owed->own_batch;
	HeraldPosition answer_up_to = owed->answer_up_to;
	uint32		slot = herald_shared_my_slot();

	owed->own_batch = owed->answer_up_to = 0;
	if (own_batch == 0 && !herald_dispatch_is_behind(answer_up_to))
		return own_batch;

	if (herald_wakeup_busy(herald_wakeup, slot))
		herald_turns_pump();
	if (own_batch != 0)
		herald_dispatch_wait_after_commit(own_batch);
	else
		herald_dispatch_catch_up(answer_up_to);
	(void) herald_wakeup_rest(herald_wakeup, slot);
	return own_batch;
}

/* Has this session missed notifications on a channel that it has resumed? */
static bool
has_missed(const HeraldDelivery *owed)
{
	if (owed->has_missed || owed->resumed_sets == 0)
		return owed->has_missed;

	/*
	 * The statement has been answered: a cancel request is not meant for
	 * this.
	 */
	HOLD_CANCEL_INTERRUPTS();
	herald_bypass_await_counting();
	RESUME_CANCEL_INTERRUPTS();
	return herald_bypass_since(owed->bypasses, owed->resumed_sets);
}

/*
 * What channels begin with, from the WAL.  Our word is BUSY meanwhile: we could not use a turn, and
 * the client may read slowly.  The client gets a position at the end of a transaction, so that
 * it can go on from there on any server; but there is none as long as other channels have received
 * less or more than these.
 */
static void
send_past(void)
{
	HeraldCursor *cursor = herald_session_cursor();
	HeraldPosition cut = cursor->cut;
	uint32		slot = herald_shared_my_slot();
	bool		as_is = can_send_as_is();
	bool		has_positions;
	HeraldChannelCounters *position_counters;
	uint64		delivered = 0;
	uint64		untold = 0;
	HeraldPast	past;

	if (cursor->past == NULL)
		return;
	has_positions = herald_subscriptions_all_have_past();
	if (herald_wakeup_busy(herald_wakeup, slot))
		herald_turns_pump();
	InvalidateCatalogSnapshotConditionally();
	herald_frames_begin();
	while (herald_cursor_next_past(cursor, &past))
	{
		HeraldChannelCounters *counters = past.entry == NULL ? NULL : herald_subscriptions_admit_past(past.entry);

		if (counters != NULL)
		{
			send_entry(past.entry, as_is);
			atomic_fetch_add_explicit(&counters->delivered, 1, memory_order_relaxed);
			delivered++;
			untold++;
		}
		if (past.entry != NULL || untold < TELL_EVERY)
			continue;
		herald_frames_send();
		position_counters = has_positions ? herald_position_channel_wanted() : NULL;
		if (position_counters != NULL)
			herald_position_channel_tell(position_counters, herald_cursor_position(cursor), cut);
		untold = 0;
		herald_frames_flush();
		if (ProcDiePending || ClientConnectionLost)
			CHECK_FOR_INTERRUPTS();
	}
	herald_frames_send();
	herald_count(&herald_slots[slot].delivered, delivered);
	herald_shared_count(HERALD_COUNT_DELIVERED, delivered);

	herald_session_set_positions_from(cut);
	herald_subscriptions_end_past();
	owes_position = true;
	(void) herald_wakeup_rest(herald_wakeup, slot);
}

static void
begin_reading(HeraldReader *reader, HeraldPosition from, HeraldPosition to)
{
	HeraldReadBuffer buffer = herald_read_buffer();

	herald_count(&herald_slots[herald_shared_my_slot()].wakeups, 1);
	herald_shared_count(HERALD_COUNT_WAKEUPS, 1);

	/*
	 * Sending may take long if the client is slow, and vacuum must not wait
	 * for that.
	 */
	InvalidateCatalogSnapshotConditionally();

	herald_frames_begin();
	herald_reader_begin(reader, herald_queue, MyDatabaseId, from, to, buffer.bytes, buffer.size);
	herald_reader_use_spilled(reader, herald_spill_read);
	herald_reader_use_files(reader, herald_large_reader_read, herald_subscriptions_include);
}

/* own_batch: the end of the batch that our statement waits for; 0: none.  True: the server is at rest. */
static bool
read_and_send(HeraldPosition from, HeraldPosition to, HeraldPosition own_batch)
{
	uint32		slot = herald_shared_my_slot();
	bool		as_is = can_send_as_is();
	bool		at_rest;
	HeraldReader reader;

	begin_reading(&reader, from, to);
	for (int round = 1;; round++)
	{
		bool		at_end = read_on(&reader, &to, own_batch, as_is);

		if (at_end && herald_moderation_stay(to))
			round = 0;
		HERALD_HOLD_POINT("deliver-all-read");

		/*
		 * An idle word means that we can act on a signal.  So if the client
		 * does not accept all output at once, wait for it before the word
		 * becomes idle, and without a turn.
		 */
		if (!herald_frames_go_out())
		{
			advance(reader.checkpoint);
			herald_turns_give_back();
			herald_frames_flush();
		}

		if (at_end && herald_wakeup_finish(herald_wakeup, herald_queue, slot, &to))
		{
			at_rest = herald_moderation_end(true, is_alone(&reader, from));
			break;
		}
		if (!at_end || round == ROUNDS_MAX)
		{
			at_rest = herald_moderation_end(at_end, false);
			herald_wakeup_requeue(herald_wakeup, slot, reader.checkpoint);
			break;
		}
		herald_reader_extend(&reader, to);
	}
	herald_read_buffer_shrink(HERALD_TURN_BYTES);
	return at_rest;
}

/* Did we read one batch, and does the queue end with it?  Batches for others count, too. */
static bool
is_alone(const HeraldReader *reader, HeraldPosition from)
{
	return from + reader->header.length == atomic_load_explicit(&herald_queue->head, memory_order_relaxed);
}

/* False: the end is not reached, but we have read the share of one turn, and our own batch. */
static bool
read_on(HeraldReader *reader, HeraldPosition *to, HeraldPosition own_batch, bool as_is)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	uint64		turn_bytes = as_is ? HERALD_TURN_BYTES : HERALD_TURN_BYTES / CONVERSION_COST;
	HeraldChannelCounters *counters = NULL;
	uint64		delivered = 0;
	uint64		of_channel = 0; /* part of `delivered`: on the channel of
								 * `counters` */
	uint64		untold = 0;		/* part of `delivered`: since the client's
								 * last position */
	bool		at_end = false;
	HeraldPosition begin = reader->checkpoint;
	HeraldMessage message;

	if (herald_shared_is_damaged())
	{
		tell_missed(reader, to, "The notification queue of pg_herald is damaged, and was switched off.");
		return true;
	}
	for (;;)
	{
		HeraldReadResult result = herald_reader_next(reader, &message);
		HeraldChannelCounters *admitted;

		if (result != HERALD_READ_MESSAGE)
			herald_frames_send();
		switch (result)
		{
			case HERALD_READ_MESSAGE:
				admitted = herald_subscriptions_admit(&message);
				if (admitted != NULL)
				{
					HERALD_FAULT_POINT("deliver-message");
					herald_moderation_sent(herald_entry_pid(message.entry), message.batch);
					herald_cursor_receive(herald_session_cursor(), message.commit);
					send_entry(message.entry, as_is);
					if (admitted != counters)
						count_delivered(counters, &of_channel);
					counters = admitted;
					of_channel++;
					delivered++;
					untold++;
					HERALD_FAULT_POINT("deliver-message-sent");
				}
				if (untold >= TELL_EVERY && herald_reader_batch_end(reader) != 0)
				{
					herald_frames_send();
					tell_position(herald_reader_batch_end(reader));
					untold = 0;
				}
				continue;
			case HERALD_READ_REFILLED:

				/*
				 * We do not need the segments before the current one any
				 * more.
				 */
				advance(reader->checkpoint);
				if (ProcDiePending || ClientConnectionLost)
					CHECK_FOR_INTERRUPTS();
				if (reader->bytes_read < turn_bytes)
					continue;

				/*
				 * The word cannot store a place within a batch, so each batch
				 * is read to its end.  At least one batch is read, even if an
				 * enlarged buffer exceeds the share at once.
				 */
				if (!reader->in_batch && reader->checkpoint == begin)
					continue;
				if (!reader->in_batch && reader->checkpoint >= own_batch)
					break;

				/*
				 * A session that waits for its own batch reads on, but
				 * without the turn.
				 */
				herald_turns_give_back();
				continue;
			case HERALD_READ_ROOM:
				make_room(reader);
				continue;
			case HERALD_READ_END:
				at_end = true;
				break;
			case HERALD_READ_LAPPED:
				tell_overrun(reader, to);
				at_end = true;
				break;
			case HERALD_READ_DAMAGED:
				report_damage(reader);
		}
		break;
	}

	if (delivered > 0)
		tell_position(reader->checkpoint);
	count_delivered(counters, &of_channel);
	herald_count(&mine->delivered, delivered);
	herald_shared_count(HERALD_COUNT_DELIVERED, delivered);
	return at_end;
}

/* Count consecutive messages of one channel at once: many listeners share its counter. */
static void
count_delivered(HeraldChannelCounters *counters, uint64 *n)
{
	if (*n > 0)
		atomic_fetch_add_explicit(&counters->delivered, *n, memory_order_relaxed);
	*n = 0;
}

/* The listener has read up to `position`, and continues. */
static void
advance(HeraldPosition position)
{
	if (!keeps_place)
		herald_wakeup_advance(herald_wakeup, herald_shared_my_slot(), position);
}

/*
 * Is a heartbeat to be sent?  Not to a client that does not read: the session would wait until the client does.
 */
static bool
beats(void)
{
	if (!herald_heartbeat_is_due())
		return false;
	herald_heartbeat_skip();	/* if there is no position */
	return herald_frames_has_room();
}

/*
 * Send the client a position: it has been sent everything before this place.  While messages
 * are held for a channel that will resume, there is no such position.
 */
static void
tell_position(HeraldPosition place)
{
	HeraldChannelCounters *counters;

	if (keeps_place || !herald_session_has_position(place))
		return;
	owes_position = false;
	counters = herald_position_channel_wanted();
	if (counters != NULL)
		herald_position_channel_tell(counters, herald_session_position_at(place), place);
}

static void
send_entry(const HeraldEntry *entry, bool as_is)
{
	if (as_is)
		herald_frames_add(entry->body, entry->body_length);
	else
	{
		herald_frames_expect(entry->body_length);
		NotifyMyFrontEnd(herald_entry_channel(entry), herald_entry_payload(entry), herald_entry_pid(entry));
	}
}

static void
make_room(HeraldReader *reader)
{
	HeraldReadBuffer buffer = herald_read_buffer_grow(reader->room_needed);

	herald_reader_set_buffer(reader, buffer.bytes, buffer.size);
}

static void
tell_overrun(HeraldReader *reader, HeraldPosition *to)
{
	/* The relay has logged why. */
	if (reader->in_file && reader->file == HERALD_GAP_FILE)
	{
		herald_shared_count(HERALD_COUNT_OVERRUNS, 1);
		tell_missed(reader, to, "This standby could not read them in the WAL, or not relay them.");
		return;
	}

	/*
	 * A listener below `lost` has been counted already.  Else the messages
	 * are missing for another reason, such as the deleted file of a large
	 * transaction: count it here.
	 */
	if (herald_word_position(herald_shared_my_word()) >= atomic_load(&herald_queue->lost))
		herald_spill_report_unreadable(herald_shared_my_slot());
	tell_missed(reader, to,
				"This session had not read them when herald.max_queue_size was reached or the disk was full.");
}

static void
tell_missed(HeraldReader *reader, HeraldPosition *to, const char *detail)
{
	/*
	 * From the new position on, everything is kept for us again.  Messages up
	 * to the old end may be gone too.
	 */
	report_missed(detail);
	*to = atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst);
	herald_reader_extend(reader, *to);
	herald_reader_skip(reader);
	advance(*to);
}

/*
 * Notify the client that it has missed messages.  A client that listens to the reset channel
 * continues with the next messages; any other client is disconnected, which every client
 * library handles by starting again.
 */
static void
report_missed(const char *detail)
{
	HeraldChannelCounters *counters = herald_subscriptions_counters(HERALD_RESET_CHANNEL);

	/* Sending this to the client can take long. */
	herald_turns_give_back();
	if (counters == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("terminating connection because it has missed notifications"),
				 errdetail_internal("%s", detail),
				 errhint("A session that listens to channel \"%s\" receives a notification there instead of this error.",
						 HERALD_RESET_CHANNEL)));
	NotifyMyFrontEnd(HERALD_RESET_CHANNEL, "notifications were missed", MyProcPid);
	herald_channels_count_own(counters);
}

/* This does not switch the queue off: see notify/dispatch/damage.c. */
static void
report_damage(const HeraldReader *reader)
{
	ereport(FATAL,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the notification queue of pg_herald is damaged at position %llu",
					(unsigned long long) reader->position)));
}

/*
 * If the client's encoding needs no conversion, an entry's body can be sent unchanged as a
 * message of the protocol.
 */
static bool
can_send_as_is(void)
{
	int			client = pg_get_client_encoding();

	return whereToSendOutput == DestRemote &&
		(client == GetDatabaseEncoding() || client == PG_SQL_ASCII);
}
