/*-------------------------------------------------------------------------
 *
 * queue_operations.c
 *	  The cost of a notification in the queue: sending, dispatching, reading.
 *
 * The notification is NOTIFY channel_1 without a payload: 32 bytes, and 32 more
 * for the batch's header.  Batches follow each other in a ring of the default
 * size, so that memory is accessed as in a server: in order, and mostly not
 * cached.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "micro.h"

#include <stdlib.h>
#include <string.h>

#define CHANNEL			"channel_1"
#define READ_BUFFER		(16 * 1024)		/* as in notify/listener/deliver.c */
#define NAME_MAX_BYTES	64


static uint64_t
batch_length(const Bench *bench)
{
	return sizeof(HeraldBatchHeader) + bench->entries_length;
}

/* The queue must be reset before it is used. */
void
log_create(Bench *bench)
{
	size_t		channel_length = strlen(CHANNEL);
	uint64_t	length = herald_entry_length(channel_length, 0);

	bench->queue = allocate(herald_queue_bytes(RING_SIZE));
	bench->entries = allocate(length * bench->size);
	bench->entries_length = length * bench->size;
	for (uint32_t i = 0; i < bench->size; i++)
	{
		HeraldEntry *entry = (HeraldEntry *) (bench->entries + i * length);

		entry->length = (uint32_t) length;
		entry->channel_hash = herald_hash(CHANNEL, channel_length, 0);
		entry->channel_length = (uint16_t) channel_length;
		entry->kind = HERALD_ENTRY_NOTIFICATION;
		entry->body_length = (uint32_t) (HERALD_BODY_PID + channel_length + 2);
		memcpy(entry->body + HERALD_BODY_PID, CHANNEL, channel_length);
	}
	bench->positions = allocate(RING_SIZE / batch_length(bench) * sizeof(HeraldPosition));
}

/* At most half a ring: batches do not fill segments to the last byte. */
uint64_t
log_loop(const Bench *bench, uint64_t wanted)
{
	uint64_t	n_max = RING_SIZE / 2 / batch_length(bench);

	return n_max < wanted ? n_max : wanted;
}

void
log_reset(Bench *bench, uint64_t n)
{
	(void) n;
	herald_queue_init(bench->queue, RING_SIZE);
}

HeraldPosition
log_reserve(Bench *bench, uint32_t database)
{
	HeraldBatch batch = {.count = bench->size,.database = database,.role = 1};
	HeraldPosition position = 0;

	if (!herald_queue_reserve(bench->queue, &batch, bench->entries_length, &position))
		abort();				/* the loop is too long */
	return position;
}

HeraldPosition
log_send(Bench *bench, uint32_t database)
{
	HeraldPosition position = log_reserve(bench, database);

	herald_queue_fill(bench->queue, position, bench->entries, bench->entries_length);
	herald_queue_commit(bench->queue, position, 1, 1);
	return position;
}

/* ---- sending ---- */

static void
run_reserve(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		consume(log_reserve(bench, DATABASE));
}

static void
prepare_reserved(Bench *bench, uint64_t n)
{
	log_reset(bench, n);
	for (uint64_t i = 0; i < n; i++)
		bench->positions[i] = log_reserve(bench, DATABASE);
}

static void
run_fill(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		herald_queue_fill(bench->queue, bench->positions[i], bench->entries, bench->entries_length);
}

static void
run_commit(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		herald_queue_commit(bench->queue, bench->positions[i], 1, 1);
}

static void
run_send(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		consume(log_send(bench, DATABASE));
}

/* ---- dispatching ---- */

static void
stretch_begins(HeraldPosition end, void *arg)
{
	(void) end;
	(void) arg;
}

/* As mark_batch() of notify/dispatch/dispatch.c, without the channel map. */
static uint64_t
walk_batch(const HeraldBatchHeader *header, uint32_t *offset, uint64_t budget, void *arg)
{
	const char *at = (const char *) (header + 1);
	const char *end = (const char *) header + header->length;
	const HeraldEntry *last = NULL;
	uint64_t   *changes = arg;

	(void) budget;
	*offset = header->length;
	while (at < end)
	{
		const HeraldEntry *entry = (const HeraldEntry *) at;

		if (!herald_entry_is_valid(entry, (uint64_t) (end - at)))
			abort();
		if (last == NULL || last->channel_hash != entry->channel_hash ||
			last->channel_length != entry->channel_length ||
			memcmp(herald_entry_channel(last), herald_entry_channel(entry),
				   entry->channel_length) != 0)
			(*changes)++;
		last = entry;
		at += entry->length;
	}
	return header->length;
}

void
log_dispatch(Bench *bench)
{
	uint64_t	changes = 0;
	HeraldSequencerCalls calls = {stretch_begins, walk_batch, &changes};

	consume(herald_sequencer_run(bench->queue, UINT64_MAX, &calls));
}

static void
prepare_filled(Bench *bench, uint64_t n)
{
	prepare_reserved(bench, n);
	run_fill(bench, n);
}

/* The work of a single sender after its commit record. */
static void
run_commit_dispatch(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
	{
		herald_queue_commit(bench->queue, bench->positions[i], 1, 1);
		log_dispatch(bench);
	}
}

static void
prepare_sent(Bench *bench, uint64_t n)
{
	log_reset(bench, n);
	for (uint64_t i = 0; i < n; i++)
		bench->positions[i] = log_send(bench, DATABASE);
}

/* One call dispatches all batches. */
static void
run_dispatch_together(Bench *bench, uint64_t n)
{
	(void) n;
	log_dispatch(bench);
}

/* ---- reading ---- */

static char read_buffer[READ_BUFFER] __attribute__((aligned(HERALD_CACHE_LINE)));

static uint64_t
read_stretch(Bench *bench, HeraldPosition from, HeraldPosition to)
{
	HeraldReader reader;
	HeraldMessage message;
	HeraldReadResult result;
	uint64_t	messages = 0;

	herald_reader_begin(&reader, bench->queue, DATABASE, from, to, read_buffer, sizeof(read_buffer));
	do
	{
		result = herald_reader_next(&reader, &message);
		messages += result == HERALD_READ_MESSAGE;
	} while (result == HERALD_READ_MESSAGE || result == HERALD_READ_REFILLED);
	if (result != HERALD_READ_END)
		abort();
	return messages;
}

/* A pass for each batch, as by a listener that is woken for every one. */
static void
run_read_each(Bench *bench, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		consume(read_stretch(bench, bench->positions[i],
							 bench->positions[i] + batch_length(bench)));
}

/* One pass over all batches, as by a listener that is woken once for many. */
static void
run_read_together(Bench *bench, uint64_t n)
{
	consume(read_stretch(bench, bench->positions[0], bench->positions[n - 1] + batch_length(bench)));
}

static void
prepare_foreign(Bench *bench, uint64_t n)
{
	log_reset(bench, n);
	for (uint64_t i = 0; i < n; i++)
		bench->positions[i] = log_send(bench, OTHER_DATABASE);
}

/* ---- the ring ---- */

static uint64_t
once(const Bench *bench, uint64_t wanted)
{
	(void) bench;
	(void) wanted;
	return 1;
}

/* Most senders find room without this; the one that does not zeroes a segment. */
static void
run_recycle(Bench *bench, uint64_t n)
{
	HeraldPosition start = RING_SIZE;

	(void) n;
	consume(herald_queue_recycle(bench->queue, start + bench->queue->segment_size));
}

/* ---- channels ---- */

static void
create_name(Bench *bench)
{
	bench->entries = allocate(NAME_MAX_BYTES);
	memset(bench->entries, 'a', NAME_MAX_BYTES);
	if (bench->size > NAME_MAX_BYTES)
		abort();
}

static void
run_hash(Bench *bench, uint64_t n)
{
	uint32_t	hash = 0;

	for (uint64_t i = 0; i < n; i++)
	{
		bench->entries[0] = (char) i;
		hash ^= herald_hash(bench->entries, bench->size, 0);
	}
	consume(hash);
}

const Operation queue_operations[] = {
	{"reserve", SIZE_ENTRIES, log_create, log_reset, run_reserve, log_loop},
	{"fill", SIZE_ENTRIES, log_create, prepare_reserved, run_fill, log_loop},
	{"commit", SIZE_ENTRIES, log_create, prepare_filled, run_commit, log_loop},
	{"send", SIZE_ENTRIES, log_create, log_reset, run_send, log_loop},
	{"commit_dispatch", SIZE_ENTRIES, log_create, prepare_filled, run_commit_dispatch, log_loop},
	{"dispatch_together", SIZE_ENTRIES, log_create, prepare_sent, run_dispatch_together, log_loop},
	{"read_each", SIZE_ENTRIES, log_create, prepare_sent, run_read_each, log_loop},
	{"read_together", SIZE_ENTRIES, log_create, prepare_sent, run_read_together, log_loop},
	{"skip_other_database", SIZE_ENTRIES, log_create, prepare_foreign, run_read_together, log_loop},
	{"recycle_segment", SIZE_NOTHING, log_create, log_reset, run_recycle, once},
	{"hash_payload", SIZE_BYTES, create_name, NULL, run_hash, NULL},
	{0}
};
