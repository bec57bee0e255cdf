/*-------------------------------------------------------------------------
 *
 * writer.c
 *	  Sending in the stress test: reserve, dawdle, fill, finish, dispatch.
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

#include "../../unit/entry.h"

#define ENTRIES_MAX				4
#define PACES_MAX			20
#define LARGE_ONE_IN			24

static uint32_t choose_database(Writer *writer);
static uint64_t build_batch(Writer *writer, uint64_t start, uint32_t database, bool doomed, HeraldBatch *batch,
							Sent *sent);
static uint64_t build_commit(Writer *writer);
static uint64_t build_reference(Writer *writer, uint64_t number, uint64_t length,
								HeraldBatch *batch, const Sent *sent);
static HeraldEntry *put_entry(char *at, const char *channel, uint64_t payload_length);
static uint64_t commit_end(const Stamp *stamp);
static uint64_t payload_length(Writer *writer, uint64_t room);
static void reserve(Writer *writer, const HeraldBatch *batch, uint64_t length,
					HeraldPosition *position);
static void wait_for_readers(Writer *writer);
static void remember(Writer *writer, const Sent *sent, uint32_t sent_count,
					 HeraldPosition position);


void
writer_init(Writer *writer, uint32_t id)
{
	writer->id = id;
	writer->random = run_random(id);
	writer->bytes = aligned_alloc(HERALD_ALIGN, world.queue->segment_size);
}

void
sender_act(void *arg)
{
	Writer	   *writer = arg;

	for (uint32_t i = 0; i < world.batches_per_sender; i++)
	{
		wait_for_readers(writer);
		writer_send(writer);
		atomic_fetch_add(&run.steps, 1);
		dawdle(&writer->random);
	}
}

/* One transaction with notifications. */
void
writer_send(Writer *writer)
{
	uint32_t	database = choose_database(writer);
	bool		doomed = one_in(&writer->random, 8);
	bool		is_large = one_in(&writer->random, LARGE_ONE_IN);
	uint64_t	number = 0;
	HeraldBatch batch;
	HeraldPosition position;
	Sent		sent[ENTRIES_MAX];
	Stamp		stamp = {.writer = writer->id,.seq = ++writer->seq};
	uint64_t	start = is_large ? 0 : build_commit(writer);
	uint64_t	length = build_batch(writer, start, database, doomed, &batch, sent);
	uint32_t	sent_count = batch.count - (start > 0);

	if (is_large)
	{
		number = large_write(writer, length);
		length = build_reference(writer, number, length, &batch, sent);
	}
	reserve(writer, &batch, length, &position);
	dawdle(&writer->random);
	if (is_large)
		large_place(number, position, UINT64_MAX);
	dawdle(&writer->random);
	herald_queue_fill(world.queue, position, writer->bytes, length);
	dawdle(&writer->random);
	if (doomed)
	{
		count(COUNT_ABORTS);
		if (is_large)
			large_place(number, 0, 0);
		dawdle(&writer->random);
		herald_queue_abort(world.queue, position);
	}
	else
	{
		count(COUNT_BATCHES);
		remember(writer, sent, sent_count, position);
		herald_queue_set_commit_end(world.queue, position, commit_end(&stamp));
		dawdle(&writer->random);
		herald_queue_commit(world.queue, position, (int64_t) position, (uint64_t) position);
	}
	(void) dispatch_and_pump(one_in(&writer->random, 16) ? 1 : world.queue->ring_size);
}

static uint32_t
choose_database(Writer *writer)
{
	if (world.alternates && !one_in(&writer->random, 16))
		return (uint32_t) (atomic_load(&world.queue->head) / world.queue->segment_size % DATABASES);
	return herald_random(&writer->random) % DATABASES;
}

/* The notifications follow after `start` bytes, which are the batch's commit. */
static uint64_t
build_batch(Writer *writer, uint64_t start, uint32_t database, bool doomed, HeraldBatch *batch, Sent *sent)
{
	uint64_t	used = start;
	uint32_t	entries = 1 + (uint32_t) (herald_random(&writer->random) % ENTRIES_MAX);
	Stamp		stamp = {.writer = writer->id,.seq = writer->seq,.doomed = doomed};

	for (stamp.entry = 0; stamp.entry < entries; stamp.entry++)
	{
		HeraldEntry *entry;
		uint32_t	channel = (uint32_t) (herald_random(&writer->random) % CHANNELS);
		char		name[16];
		int			name_length = snprintf(name, sizeof(name), "ch%u", channel);
		uint64_t	room = (herald_queue_batch_max(world.queue) - used) / (entries - stamp.entry);

		stamp.length = (uint32_t) payload_length(writer, room);
		entry = put_entry(writer->bytes + used, name, stamp.length);
		pattern_fill(entry->body + HERALD_BODY_PID + name_length + 1, &stamp);
		sent[stamp.entry] = (Sent) {
			.channel = channel,.database = database,.digest = stamp_digest(&stamp)
		};
		used += entry->length;
	}
	*batch = (HeraldBatch) {
		.count = entries + (start > 0),.database = database,.role = (uint32_t) writer->id
	};
	return used;
}

/* The entry that says where the batch is in the WAL, if it is there; its end is stored later. */
static uint64_t
build_commit(Writer *writer)
{
	Stamp		stamp = {.writer = writer->id,.seq = writer->seq};
	HeraldCommitId commit = stamp_commit(&stamp);

	return commit.run == 0 ? 0 : entry_write_commit(writer->bytes, commit.run, commit.place);
}

/* The commit, entries for the channels or for all listeners; then the file. */
static uint64_t
build_reference(Writer *writer, uint64_t number, uint64_t length, HeraldBatch *batch,
				const Sent *sent)
{
	uint64_t	used = build_commit(writer);
	bool		has_commit = used > 0;
	uint32_t	channels = one_in(&writer->random, 4) ? 0 : batch->count;

	for (uint32_t i = 0; i < channels; i++)
	{
		char		name[16];

		snprintf(name, sizeof(name), "ch%u", sent[i].channel);
		used += entry_write_channel(writer->bytes + used, name);
	}
	if (channels == 0)
		used += entry_write_all_listeners(writer->bytes + used);
	used += entry_write_file(writer->bytes + used, number, length);
	batch->count = has_commit + (channels == 0 ? 2 : 1 + channels);
	return used;
}

/* A notification; the caller fills in the payload. */
static HeraldEntry *
put_entry(char *at, const char *channel, uint64_t payload_length)
{
	HeraldEntry *entry = (HeraldEntry *) at;
	size_t		length = strlen(channel);

	(void) entry_write_head(at, HERALD_ENTRY_NOTIFICATION,
							HERALD_BODY_PID + length + 1 + payload_length + 1);
	entry->channel_hash = herald_hash(channel, length, 0);
	entry->channel_length = (uint16_t) length;
	memcpy(entry->body + HERALD_BODY_PID, channel, length);
	return entry;
}

/* Mostly small payloads, some large, and a few that fill the segment. */
static uint64_t
payload_length(Writer *writer, uint64_t room)
{
	uint64_t	chance = herald_random(&writer->random) % 100;
	uint64_t	max = room - sizeof(HeraldEntry) - 32;
	uint64_t	length;

	if (chance == 0)
		length = max;
	else if (chance < 20)
		length = herald_random(&writer->random) % 8000;
	else
		length = herald_random(&writer->random) % 200;
	if (length < sizeof(Stamp))
		length = sizeof(Stamp);
	return length < max ? length : max;
}

/* No writer gives up: even if listeners lag, there is room in the end. */
static void
reserve(Writer *writer, const HeraldBatch *batch, uint64_t length, HeraldPosition *position)
{
	if (herald_queue_is_short(world.queue))
		(void) spill_make_room(&writer->random);
	while (!herald_queue_reserve(world.queue, batch, length, position))
	{
		count(COUNT_FULL);
		(void) dispatch_and_pump(world.queue->ring_size);
		if (!spill_make_room(&writer->random))
			usleep((useconds_t) (herald_random(&writer->random) % 200));
	}
}

/* Lets listeners catch up. */
static void
wait_for_readers(Writer *writer)
{
	uint64_t	enough = world.queue->ring_size / 4;

	/* Unless this round is paced listeners fall behind, as spilling needs it. */
	for (int i = 0; i < PACES_MAX && world.paced; i++)
	{
		if (atomic_load(&world.queue->dispatched) -
			herald_wakeup_needed(world.wakeup, world.queue) <= enough)
			return;
		count(COUNT_PACED);
		usleep((useconds_t) (herald_random(&writer->random) % 200));
	}
}

void
dawdle(uint64_t *random)
{
	uint64_t	chance = herald_random(random);

	if (chance % 16 == 0)
		usleep((useconds_t) (chance / 16 % 300));
	else if (chance % 4 == 0)
		herald_jitter_pause(0);
}

static void
remember(Writer *writer, const Sent *sent, uint32_t sent_count, HeraldPosition position)
{
	if (writer->sent_count + sent_count > writer->sent_size)
	{
		writer->sent_size = writer->sent_size * 2 + 1024;
		writer->sent = realloc(writer->sent, writer->sent_size * sizeof(Sent));
	}
	for (uint32_t i = 0; i < sent_count; i++)
	{
		writer->sent[writer->sent_count] = sent[i];
		writer->sent[writer->sent_count++].batch = position;
	}
}

static uint64_t
pattern_seed(const Stamp *stamp)
{
	return ((uint64_t) stamp->writer << 48 ^ (uint64_t) stamp->seq << 16 ^ stamp->entry) *
		UINT64_C(0x9E3779B97F4A7C15) | 1;
}

void
pattern_fill(char *payload, const Stamp *stamp)
{
	uint64_t	random = pattern_seed(stamp);

	memcpy(payload, stamp, sizeof(*stamp));
	for (uint32_t i = sizeof(*stamp); i < stamp->length; i++)
		payload[i] = (char) herald_random(&random);
}

bool
pattern_is_intact(const char *payload, const Stamp *stamp)
{
	uint64_t	random = pattern_seed(stamp);

	for (uint32_t i = sizeof(*stamp); i < stamp->length; i++)
		if (payload[i] != (char) herald_random(&random))
			return false;
	return true;
}

uint64_t
stamp_digest(const Stamp *stamp)
{
	uint64_t	random = pattern_seed(stamp) ^ stamp->length;

	return herald_random(&random);
}

HeraldCommitId
stamp_commit(const Stamp *stamp)
{
	if (stamp->seq % 2)
		return (HeraldCommitId) {0};
	return (HeraldCommitId) {stamp->writer + 1, stamp->seq, commit_end(stamp)};
}

static uint64_t
commit_end(const Stamp *stamp)
{
	Stamp		batch = {.writer = stamp->writer,.seq = stamp->seq};

	return pattern_seed(&batch);
}
