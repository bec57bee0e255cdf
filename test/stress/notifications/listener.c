/*-------------------------------------------------------------------------
 *
 * listener.c
 *	  Listening in the stress test, step by step as a backend does it.
 *
 * A listener sleeps until it is signalled, takes the mask of reasons, and begins
 * to read only if that has a reason to.  In the active phase it also runs
 * transactions (sending to itself, adding channels), leaves and comes back,
 * and gets stuck in the middle of a pass; while things come to rest it acts
 * only when it is signalled.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress.h"

#define SLEEP_NS_MAX	1000000
#define STICK_US		8000
#define LAG_ONE_IN		24
#define LAG_LAPS		3
#define LAG_LOOK_US		500
#define RESUME_ONE_IN	4

/* How a pass over the queue ended. */
typedef enum Pass
{
	PASS_DONE,					/* idle again */
	PASS_REQUEUED,
	PASS_LEFT					/* not listening any more */
} Pass;

/* The listener that this thread reads for; see listens_to(). */
static _Thread_local Listener *reading;

static void act_while_active(Listener *listener);
static bool wait_for_signal(Listener *listener);
static void open_session(Listener *listener);
static void close_session(Listener *listener, HeraldPosition stop);
static void end_session(Listener *listener, HeraldPosition stop);
static void listen(Listener *listener, uint32_t channel);
static void run_transaction(Listener *listener);
static void resume(Listener *listener, HeraldPosition position);
static bool hold(Listener *listener, HeraldPosition position, HeraldPosition *had_read);
static void process(Listener *listener);
static Pass read_pass(Listener *listener, HeraldReader *reader, HeraldPosition to);
static bool read_to_end(Listener *listener, HeraldReader *reader, int *batches_left);
static bool tell_overrun(Listener *listener, HeraldReader *reader);
static void note_moved(Listener *listener, HeraldPosition position);
static void grow_buffer(Listener *listener, HeraldReader *reader);
static bool listens_to(const HeraldEntry *entry, HeraldPosition batch);
static void receive(Listener *listener, const HeraldMessage *message);
static void settle_batch(Listener *listener);
static void stick(Listener *listener);
static void lag(Listener *listener);


void
listener_act(void *arg)
{
	Listener   *listener = arg;

	while (!listener->joined)
		open_session(listener);
	while (current_phase() < PHASE_VERIFY)
	{
		if (wait_for_signal(listener))
			process(listener);
		else if (current_phase() == PHASE_ACTIVE)
			act_while_active(listener);
		while (!listener->joined)
			open_session(listener);
	}
}

static void
act_while_active(Listener *listener)
{
	uint64_t	chance = herald_random(&listener->random) % 16;

	if (chance < 6)
		run_transaction(listener);
	else if (chance == 6 && listener->ended_count < SESSIONS_MAX - 2)
		close_session(listener, listener->session.stop);
}

/* True: we were signalled, for notifications. */
static bool
wait_for_signal(Listener *listener)
{
	if (current_phase() != PHASE_ACTIVE)
	{
		atomic_store(&listener->parked, 1);
		signal_wait(&listener->signal);
		atomic_fetch_add(&listener->woken, 1);
		atomic_store(&listener->parked, 0);
	}
	else if (!signal_wait_for(&listener->signal, herald_random(&listener->random) % SLEEP_NS_MAX))
		return false;
	return herald_reasons_take(&listener->reasons, HERALD_REASONS_NOTIFY) != 0;
}

/*
 * A transaction that LISTENs to a new set of channels.  The session may be closed
 * again at its end, if the first pass was overrun.
 */
static void
open_session(Listener *listener)
{
	HeraldPosition start = atomic_load_explicit(&world.queue->dispatched, memory_order_seq_cst);

	count(COUNT_SESSIONS);
	listener->session = (Session) {.stop = start};
	for (uint32_t channel = 0; channel < CHANNELS; channel++)
		listener->session.start[channel] = NOT_LISTENING;
	listener->joined = true;
	herald_wakeup_join(world.wakeup, listener->slot, start);
	for (uint32_t channel = 0; channel < CHANNELS; channel++)
		if (one_in(&listener->random, 2))
			listen(listener, channel);
	if (herald_wakeup_rest(world.wakeup, listener->slot))
		process(listener);
}

/* Leave, in any state, having read everything up to `stop`. */
static void
close_session(Listener *listener, HeraldPosition stop)
{
	end_session(listener, stop);
	for (uint32_t channel = 0; channel < CHANNELS; channel++)
		if (listener->session.start[channel] != NOT_LISTENING)
			map_set(channel, listener->index, false);
	listener->joined = false;
	herald_wakeup_leave(world.wakeup, listener->slot);
	pump(HERALD_ALL_TURNS);
}

/* Keep what the session has received, for the verification. */
static void
end_session(Listener *listener, HeraldPosition stop)
{
	settle_batch(listener);
	listener->session.stop = stop;
	if (listener->ended_count == SESSIONS_MAX + RESETS_MAX)
		fail("listener %u: too many sessions", listener->index);
	listener->ended[listener->ended_count++] = listener->session;
}

/* Enter the map first, then read the queue's position [W1]. */
static void
listen(Listener *listener, uint32_t channel)
{
	if (listener->session.start[channel] != NOT_LISTENING)
		return;
	map_set(channel, listener->index, true);
	listener->session.start[channel] =
		atomic_load_explicit(&world.queue->dispatched, memory_order_seq_cst);
}

static void
run_transaction(Listener *listener)
{
	if (herald_wakeup_busy(world.wakeup, listener->slot))
		pump(HERALD_ALL_TURNS);
	if (one_in(&listener->random, 4))
		listen(listener, herald_random(&listener->random) % CHANNELS);
	if (one_in(&listener->random, RESUME_ONE_IN))
		resume(listener, listener->read_before[herald_random(&listener->random) % READ_BEFORE]);

	/* A position as herald.read() returns it: nothing is read again, and nothing left out. */
	if (one_in(&listener->random, 3 * RESUME_ONE_IN))
		resume(listener, atomic_load(&world.queue->dispatched));
	if (one_in(&listener->random, 8))
		stick(listener);
	lag(listener);
	if (one_in(&listener->random, 2))
		writer_send(&world.writers[SENDERS + listener->index]);
	if (herald_wakeup_rest(world.wakeup, listener->slot))
	{
		count(COUNT_SELF_PASSES);
		process(listener);
	}
}

/*
 * Some channels begin again at a batch of this round that we have read; the others
 * go on after what we have read so far.
 */
static void
resume(Listener *listener, HeraldPosition position)
{
	HeraldPosition had_read;

	if (position == 0 || listener->ended_count >= SESSIONS_MAX - 2)
		return;
	if (!hold(listener, position, &had_read))
	{
		count(COUNT_GONE);
		if (position >= herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX))
			fail("listener %u: %llu is kept, and said to be gone", listener->index,
				 (unsigned long long) position);
		return;
	}

	/* If we have not read up to there yet, there is nothing to read again. */
	if (had_read <= position)
		return;
	count(COUNT_HOLDS);
	end_session(listener, had_read);
	listener->session = (Session) {.stop = position};
	for (uint32_t channel = 0; channel < CHANNELS; channel++)
	{
		HeraldPosition *start = &listener->session.start[channel];

		*start = listener->ended[listener->ended_count - 1].start[channel];
		if (one_in(&listener->random, 4))
		{
			map_set(channel, listener->index, true);
			*start = position;
		}
		else if (*start < had_read)
			*start = had_read;
	}
	listener->last_batch = 0;
	memset(listener->last_seq, 0, sizeof(listener->last_seq));
	note_moved(listener, position);
	lag(listener);
}

/* A session that begins to need older data is the spiller meanwhile [F4]. */
static bool
hold(Listener *listener, HeraldPosition position, HeraldPosition *had_read)
{
	bool		result;

	dawdle(&listener->random);
	spill_lock();
	result = herald_retention_hold(&world.spiller, listener->slot, UINT64_MAX, position, had_read);
	spill_unlock();
	return result;
}

/* It is our turn to read, or we read by ourselves. */
static void
process(Listener *listener)
{
	HeraldPosition from;
	HeraldPosition to;
	HeraldReader reader;

	if (!listener->joined ||
		!herald_wakeup_begin(world.wakeup, world.queue, listener->slot, &from, &to))
		return;
	count(COUNT_PASSES);
	if (from < listener->session.stop)
		fail("listener %u: sent back from %llu to %llu", listener->index,
			 (unsigned long long) listener->session.stop, (unsigned long long) from);
	herald_reader_begin(&reader, world.queue, listener->database, from, to,
						listener->buffer, listener->buffer_size);
	herald_reader_use_spilled(&reader, spill_read);
	reading = listener;
	herald_reader_use_files(&reader, large_read, listens_to);
	listener->pinned = from;
	lag(listener);
	switch (read_pass(listener, &reader, to))
	{
		case PASS_DONE:
			(void) herald_wakeup_yield(world.wakeup, listener->slot);
			pump_after_pass(&listener->random);
			break;
		case PASS_REQUEUED:
			count(COUNT_REQUEUES);
			herald_wakeup_requeue(world.wakeup, listener->slot, listener->session.stop);
			note_moved(listener, listener->session.stop);
			pump(HERALD_ALL_TURNS);
			break;
		case PASS_LEFT:
			break;
	}
	if (reader.checkpoint - from >= reader.bytes_read + world.queue->segment_size)
		count(COUNT_PASSED_OVER);
	spill_end_reading();
}

static Pass
read_pass(Listener *listener, HeraldReader *reader, HeraldPosition to)
{
	int			batches_left = 1 + (int) (herald_random(&listener->random) % 40);

	for (;;)
	{
		if (!read_to_end(listener, reader, &batches_left))
			return PASS_LEFT;
		settle_batch(listener);
		if (reader->position < to)
		{
			/* Enough for one turn, at the border of a batch. */
			if (current_phase() == PHASE_ACTIVE && one_in(&listener->random, 16) &&
				listener->ended_count < SESSIONS_MAX - 2)
			{
				count(COUNT_LEFT_READING);
				close_session(listener, reader->position);
				return PASS_LEFT;
			}
			listener->session.stop = reader->position;
			return PASS_REQUEUED;
		}
		listener->session.stop = to;
		if (herald_wakeup_finish(world.wakeup, world.queue, listener->slot, &to))
			return PASS_DONE;
		note_moved(listener, listener->session.stop);
		count(COUNT_AGAIN);
		herald_reader_extend(reader, to);
	}
}

/* Read to the end, or *batches_left batches.  False: overrun, and not listening any more. */
static bool
read_to_end(Listener *listener, HeraldReader *reader, int *batches_left)
{
	HeraldListenerWord *word = herald_wakeup_word(world.wakeup, listener->slot);
	HeraldMessage message;

	for (;;)
	{
		switch (herald_reader_next(reader, &message))
		{
			case HERALD_READ_MESSAGE:
				receive(listener, &message);
				if (reader->position == reader->checkpoint + reader->header.length &&
					--*batches_left <= 0)
					return true;
				break;
			case HERALD_READ_END:
				return true;
			case HERALD_READ_REFILLED:
				herald_listener_advance(word, reader->checkpoint);
				note_moved(listener, reader->checkpoint);
				stick(listener);
				lag(listener);
				break;
			case HERALD_READ_ROOM:
				grow_buffer(listener, reader);
				break;
			case HERALD_READ_LAPPED:
				if (!tell_overrun(listener, reader))
					return false;
				break;
			case HERALD_READ_DAMAGED:
				fail("listener %u: the queue is damaged at %llu", listener->index,
					 (unsigned long long) reader->position);
		}
	}
}

/*
 * A listener is lapped only if it is, or was, below `lost`, and the spiller must have
 * reported it [F2]; or if it has got to a large transaction whose file was given up.  It
 * misses all that it had not read, but nothing that was sent later.  False: the listener has
 * left because of it.
 */
static bool
tell_overrun(Listener *listener, HeraldReader *reader)
{
	HeraldPosition at = reader->checkpoint;
	bool		is_excused = at < listener->excused || large_take_missed();

	if (listener->pinned >= atomic_load(&world.queue->lost) && !is_excused)
		fail("listener %u: lapped at %llu, though it was not overrun", listener->index,
			 (unsigned long long) at);
	if (atomic_exchange(&listener->reported, 0) == 0 && !is_excused)
		fail("listener %u: lapped at %llu, and nobody has said so", listener->index,
			 (unsigned long long) at);

	/* A batch that was read in part does not count. */
	if (listener->last_batch == at)
		listener->batch_count = listener->batch_digest = 0;
	if (one_in(&listener->random, 4))
	{
		count(COUNT_DISCONNECTS);
		close_session(listener, at);
		return false;
	}

	count(COUNT_RESETS);
	end_session(listener, at);
	herald_reader_skip(reader);
	listener->session.stop = reader->end;
	listener->session.count = listener->session.digest = 0;
	for (uint32_t channel = 0; channel < CHANNELS; channel++)
		if (listener->session.start[channel] < reader->end)
			listener->session.start[channel] = reader->end;
	return true;
}

/*
 * Our word has moved.  If it was below `lost` until then, other threads may have
 * recycled regardless of us, up to `settled`.
 */
static void
note_moved(Listener *listener, HeraldPosition position)
{
	if (listener->pinned < atomic_load(&world.queue->lost))
		listener->excused = atomic_load(&world.queue->settled);
	listener->pinned = position;
}

static void
grow_buffer(Listener *listener, HeraldReader *reader)
{
	free(listener->buffer);
	listener->buffer_size = HERALD_ALIGN_UP(reader->room_needed);
	listener->buffer = aligned_alloc(HERALD_ALIGN, listener->buffer_size);
	herald_reader_set_buffer(reader, listener->buffer, listener->buffer_size);
}

/* A HeraldListensTo. */
static bool
listens_to(const HeraldEntry *entry, HeraldPosition batch)
{
	unsigned	channel = CHANNELS;

	if (sscanf(herald_entry_channel(entry), "ch%u", &channel) != 1 || channel >= CHANNELS)
		fail("listener %u: not a channel at %llu", reading->index, (unsigned long long) batch);
	return reading->session.start[channel] <= batch;
}

/* Check everything in one message; count it if we listen to its channel. */
static void
receive(Listener *listener, const HeraldMessage *message)
{
	const HeraldEntry *entry = message->entry;
	const char *payload = herald_entry_payload(entry);
	HeraldPosition batch = message->batch;
	unsigned	channel = CHANNELS;
	HeraldCommitId commit;
	Stamp		stamp;

	memcpy(&stamp, payload, sizeof(stamp));
	if (sscanf(herald_entry_channel(entry), "ch%u", &channel) != 1 || channel >= CHANNELS ||
		stamp.writer >= WRITERS || message->sender.role != (uint32_t) stamp.writer ||
		message->commit_time != (int64_t) batch || message->sender.xid != (uint64_t) batch ||
		stamp.length != herald_entry_payload_length(entry))
		fail("listener %u: not a message at %llu", listener->index,
			 (unsigned long long) batch);
	if (!pattern_is_intact(payload, &stamp))
		fail("listener %u: batch %llu is overwritten", listener->index,
			 (unsigned long long) batch);
	commit = stamp_commit(&stamp);
	if (memcmp(&message->commit, &commit, sizeof(commit)) != 0)
		fail("listener %u: batch %llu comes with another commit", listener->index,
			 (unsigned long long) batch);
	if (stamp.doomed)
		fail("listener %u: batch %llu was aborted", listener->index,
			 (unsigned long long) batch);
	if (batch < listener->last_batch ||
		(batch == listener->last_batch && stamp.entry <= listener->last_entry) ||
		(batch != listener->last_batch && stamp.seq <= listener->last_seq[stamp.writer]))
		fail("listener %u: batch %llu, entry %u of writer %u, seq %u, after batch %llu, entry %u",
			 listener->index, (unsigned long long) batch, stamp.entry, stamp.writer,
			 stamp.seq, (unsigned long long) listener->last_batch, listener->last_entry);

	if (batch != listener->last_batch)
	{
		settle_batch(listener);
		listener->read_before[herald_random(&listener->random) % READ_BEFORE] = batch;
	}
	listener->last_batch = batch;
	listener->last_entry = stamp.entry;
	listener->last_seq[stamp.writer] = stamp.seq;
	if (listener->session.start[channel] <= batch)
	{
		count(COUNT_RECEIVED);
		listener->batch_count++;
		listener->batch_digest += stamp_digest(&stamp);
	}
}

/* The last batch was received as a whole: it counts. */
static void
settle_batch(Listener *listener)
{
	listener->session.count += listener->batch_count;
	listener->session.digest += listener->batch_digest;
	listener->batch_count = listener->batch_digest = 0;
}

/* A client that does not take its messages for a while. */
static void
stick(Listener *listener)
{
	if (current_phase() == PHASE_ACTIVE && one_in(&listener->random, 64))
		usleep((useconds_t) (herald_random(&listener->random) % STICK_US));
}

/* A client that does not until the head is laps further on. */
static void
lag(Listener *listener)
{
	HeraldPosition until;

	if (!world.lags || !one_in(&listener->random, LAG_ONE_IN))
		return;
	count(COUNT_LAGS);
	until = atomic_load(&world.queue->head) +
		herald_random(&listener->random) % (LAG_LAPS * world.queue->ring_size);
	while (current_phase() == PHASE_ACTIVE && atomic_load(&world.queue->head) < until)
		usleep(LAG_LOOK_US);
}
