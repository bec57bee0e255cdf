/*-------------------------------------------------------------------------
 *
 * deliver.c
 *	  From the queue to the client.
 *
 * Runs in the empty transaction that the server runs in an idle backend when
 * it is signalled.  Reads the queue from our first pending position to the
 * dispatched one, sends what is on our channels, and passes the turn on.
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
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/client.h"
#include "base/compat.h"
#include "base/own_channels.h"
#include "base/shared.h"
#include "core/queue_reader.h"
#include "core/stop_point.h"
#include "notify/dispatch/dispatch.h"
#include "notify/dispatch/turns.h"
#include "notify/listener/deliver.h"
#include "notify/listener/frames.h"
#include "notify/listener/moderation.h"
#include "notify/listener/position_channel.h"
#include "notify/listener/read_buffer.h"
#include "notify/listener/session.h"
#include "notify/listener/subscriptions.h"
#include "notify/listener/token.h"
#include "notify/storage/large_files.h"
#include "notify/storage/spill.h"

/*
 * So often we go on by ourselves when more has come in while we were reading;
 * then what we have must go out, and others have their turn.
 */
#define ROUNDS_MAX		4

/* So often the client is told its position within a delivery: what it has by then it need not get twice. */
#define TELL_EVERY		1000

/* What is converted to the client's encoding takes so much longer than what goes out as it is. */
#define CONVERSION_COST	4

/* The word stays where it is, whatever we read: see herald_deliver_earlier(). */
static bool keeps_place;

static void await_dispatch(HeraldPosition own_batch);
static void begin_reading(HeraldReader *reader, HeraldPosition from, HeraldPosition to);
static void read_and_send(HeraldPosition from, HeraldPosition to, HeraldPosition own_batch);
static bool read_on(HeraldReader *reader, HeraldPosition *to, HeraldPosition own_batch,
					bool send_as_is);
static void count_delivered(HeraldChannelCounters *counters, uint64 *n);
static void advance(HeraldPosition position);
static void tell_position(HeraldPlace place);
static void send_message(const HeraldMessage *message, bool as_is);
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
	bool		own_signal = herald_session_take_own_signal();
	bool		save_exit_on_any_error = ExitOnAnyError;
	HeraldPosition own_batch = herald_session_take_awaited();
	HeraldPosition position;
	HeraldPosition from;
	HeraldPosition to;

	HERALD_STOP_POINT("deliver-called");
	herald_session_hears_natively();

	/*
	 * The server runs empty transactions for reasons of its own as well, after
	 * which it does not flush.  If there is a signal of ours, it flushes after
	 * the one that it runs, or is about to run, for that.
	 */
	if (herald_reasons_take(&herald_slots[slot].reasons, HERALD_REASONS_NOTIFY) == 0 && !own_signal)
		return;
	HERALD_STOP_POINT("deliver-begin");
	await_dispatch(own_batch);
	if (herald_session_take_missed())
		report_missed("They went through the server's own queue while this session resumed a channel.");

	if (herald_wakeup_begin(herald_wakeup, herald_queue, slot, &from, &to))
	{
		herald_moderation_begin(herald_session_take_statement());
		ExitOnAnyError = true;
		HERALD_FAULT_POINT("deliver-read");
		read_and_send(from, to, own_batch);
		ExitOnAnyError = save_exit_on_any_error;
	}
	position = herald_wakeup_has_read(herald_wakeup, herald_queue, slot);
	if (herald_session_take_owed_position() || herald_position_channel_is_due(slot, position))
		tell_position((HeraldPlace) {position, 0});
	HERALD_HOLD_POINT("deliver-done");
	(void) herald_wakeup_yield(herald_wakeup, slot);
	HERALD_HOLD_POINT("turn-given-back");
	herald_turns_pump();
}

/*
 * Stock delivers it before the first statement of this transaction: the backend
 * was idle by then, and signalled.  We may not have had a turn yet, and after
 * the commit the channel is gone.  A notification that has been answered may also
 * be behind one that is still committing: that is waited for, too, but not for
 * longer than a second.
 *
 * The word stays BUSY_PENDING, its position moves; unless the transaction keeps what
 * a channel is to begin with.
 */
void
herald_deliver_earlier(void)
{
	uint32		slot = herald_shared_my_slot();
	bool		save_exit_on_any_error = ExitOnAnyError;
	HeraldPosition to = herald_session_began_at();
	HeraldPosition settled;
	HeraldReader reader;
	uint64		word;

	if (!herald_session_is_listener() || to == 0)
		return;

	herald_dispatch_wait_a_while(to);
	settled = atomic_load_explicit(&herald_queue->settled, memory_order_seq_cst);
	to = Min(to, settled);
	word = atomic_load_explicit(herald_wakeup_word(herald_wakeup, slot), memory_order_seq_cst);
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

/*
 * Others' batches may have to be dispatched first.  Meanwhile we are busy: a turn
 * would be of no use to us.
 */
static void
await_dispatch(HeraldPosition own_batch)
{
	uint32		slot = herald_shared_my_slot();
	HeraldPosition answer_up_to = herald_session_take_answer_up_to();

	if (own_batch == 0 && !herald_dispatch_is_behind(answer_up_to))
		return;

	if (herald_wakeup_busy(herald_wakeup, slot))
		herald_turns_pump();
	if (own_batch != 0)
		herald_dispatch_wait(own_batch);
	else
		herald_dispatch_catch_up(answer_up_to);
	(void) herald_wakeup_rest(herald_wakeup, slot);
}

static void
begin_reading(HeraldReader *reader, HeraldPosition from, HeraldPosition to)
{
	HeraldReadBuffer buffer = herald_read_buffer();

	herald_count(&herald_slots[herald_shared_my_slot()].wakeups, 1);
	herald_shared_count(HERALD_COUNT_WAKEUPS, 1);

	/* The client may take its time, and vacuum must not wait for it. */
	InvalidateCatalogSnapshotConditionally();

	herald_frames_begin();
	herald_reader_begin(reader, herald_queue, MyDatabaseId, from, to, buffer.bytes, buffer.size);
	herald_reader_use_spilled(reader, herald_spill_read);
	herald_reader_use_files(reader, herald_large_files_read, herald_subscriptions_include);
}

/* own_batch: where the one ends that our statement waits for; 0: none. */
static void
read_and_send(HeraldPosition from, HeraldPosition to, HeraldPosition own_batch)
{
	uint32		slot = herald_shared_my_slot();
	bool		as_is = can_send_as_is();
	HeraldReader reader;

	begin_reading(&reader, from, to);
	for (int round = 1;; round++)
	{
		bool		at_end = read_on(&reader, &to, own_batch, as_is);

		if (at_end && herald_moderation_stay(to))
			round = 0;
		HERALD_HOLD_POINT("deliver-all-read");

		/*
		 * An idle word says that we can act on a signal.  So what does not go out
		 * at once is waited for before that, and without a turn.
		 */
		if (!herald_frames_go_out())
		{
			advance(reader.checkpoint);
			herald_turns_give_back();
			(void) pq_flush();
		}

		if (at_end && herald_wakeup_finish(herald_wakeup, herald_queue, slot, &to))
		{
			herald_moderation_end(true);
			break;
		}
		if (!at_end || round == ROUNDS_MAX)
		{
			herald_moderation_end(at_end);
			herald_wakeup_requeue(herald_wakeup, slot, reader.checkpoint);
			break;
		}
		herald_reader_extend(&reader, to);
	}
	herald_read_buffer_shrink(HERALD_TURN_BYTES);
}

/* False: not at the end yet, but we have read our share, and our own batch. */
static bool
read_on(HeraldReader *reader, HeraldPosition *to, HeraldPosition own_batch, bool as_is)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	uint64		turn_bytes = as_is ? HERALD_TURN_BYTES : HERALD_TURN_BYTES / CONVERSION_COST;
	HeraldChannelCounters *counters = NULL;
	uint64		delivered = 0;
	uint64		of_channel = 0; /* of these, on the channel of `counters` */
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
					herald_moderation_sent(message.sender_pid, message.batch);
					send_message(&message, as_is);
					if (admitted != counters)
						count_delivered(counters, &of_channel);
					counters = admitted;
					of_channel++;
					delivered++;
					if (delivered % TELL_EVERY == 0)
					{
						herald_frames_send();
						tell_position(message.after);
					}
					HERALD_FAULT_POINT("deliver-message-sent");
				}
				continue;
			case HERALD_READ_REFILLED:
				/* The segments before the one we are in are not ours any more. */
				advance(reader->checkpoint);
				if (ProcDiePending || ClientConnectionLost)
					CHECK_FOR_INTERRUPTS();
				if (reader->bytes_read < turn_bytes)
					continue;

				/*
				 * The word holds no place within a batch: that is read whole.
				 * And we get on by one batch at least, however much a buffer
				 * that has grown takes at once.
				 */
				if (!reader->in_batch && reader->checkpoint == begin)
					continue;
				if (!reader->in_batch && reader->checkpoint >= own_batch)
					break;

				/* A session that waits for its own batch reads on; others have its turn. */
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
		tell_position((HeraldPlace) {reader->checkpoint, 0});
	count_delivered(counters, &of_channel);
	herald_count(&mine->delivered, delivered);
	herald_shared_count(HERALD_COUNT_DELIVERED, delivered);
	return at_end;
}

/* Messages of one channel tend to come together: many listeners share its counter. */
static void
count_delivered(HeraldChannelCounters *counters, uint64 *n)
{
	if (*n > 0)
		atomic_fetch_add_explicit(&counters->delivered, *n, memory_order_relaxed);
	*n = 0;
}

/* The listener has read up to here, and goes on. */
static void
advance(HeraldPosition position)
{
	if (!keeps_place)
		herald_wakeup_advance(herald_wakeup, herald_shared_my_slot(), position);
}

/*
 * After what has been sent, as far as it goes: everything before this place.  While
 * a channel is kept waiting there is no such position.
 */
static void
tell_position(HeraldPlace place)
{
	if (keeps_place)
		return;
	(void) herald_session_take_owed_position();
	herald_position_channel_tell(place);
}

static void
send_message(const HeraldMessage *message, bool as_is)
{
	const HeraldEntry *entry = message->entry;

	if (as_is)
		herald_frames_add(entry->body, entry->body_length);
	else
	{
		herald_frames_expect(entry->body_length);
		NotifyMyFrontEnd(herald_entry_channel(entry), herald_entry_payload(entry),
						 message->sender_pid);
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
	uint32		slot = herald_shared_my_slot();

	/* A listener that was overrun has been counted; nobody has given up what we came for. */
	if (herald_word_position(atomic_load(herald_wakeup_word(herald_wakeup, slot))) >=
		atomic_load(&herald_queue->lost))
		herald_spill_count_unread(slot);
	tell_missed(reader, to,
				"This session had not read them when herald.max_queue_size was reached or the disk was full.");
}

static void
tell_missed(HeraldReader *reader, HeraldPosition *to, const char *detail)
{
	/*
	 * From here on all is kept for us again.  What we were to read up to may be
	 * gone by now as well.
	 */
	report_missed(detail);
	*to = atomic_load_explicit(&herald_queue->dispatched, memory_order_seq_cst);
	herald_reader_extend(reader, *to);
	herald_reader_skip(reader);
	advance(*to);
}

/*
 * The client has missed messages, and has to know.  One that listens for that
 * goes on with what comes next; any other is disconnected, which every client
 * library takes as a reason to start afresh.
 */
static void
report_missed(const char *detail)
{
	/* To tell the client can take long. */
	herald_turns_give_back();
	if (!herald_subscriptions_include_name(HERALD_RESET_CHANNEL))
		ereport(FATAL,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("terminating connection because it has missed notifications"),
				 errdetail_internal("%s", detail),
				 errhint("A session that listens to channel \"%s\" receives a notification there instead of this error.",
						 HERALD_RESET_CHANNEL)));
	NotifyMyFrontEnd(HERALD_RESET_CHANNEL, "notifications were missed", MyProcPid);
}

/* The queue is not switched off for that: see notify/dispatch/damage.c. */
static void
report_damage(const HeraldReader *reader)
{
	ereport(FATAL,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the notification queue of pg_herald is damaged at position %llu",
					(unsigned long long) reader->position)));
}

/*
 * An entry of the queue is a message of the protocol already, if the client's
 * encoding needs no conversion.
 */
static bool
can_send_as_is(void)
{
	int			client = pg_get_client_encoding();

	return whereToSendOutput == DestRemote &&
		(client == GetDatabaseEncoding() || client == PG_SQL_ASCII);
}
