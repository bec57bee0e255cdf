/*-------------------------------------------------------------------------
 *
 * support.h
 *	  Shared by the unit tests of core/: logs, batches and entries made by hand.
 *
 * Memory that a test hands to core/ is allocated with its exact size, so that
 * the address sanitizer sees every read outside of it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_TEST_SUPPORT_H
#define HERALD_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sequencer.h"
#include "entry.h"
#include "queue_reader.h"

#define DATABASE		5u		/* the listener's */
#define OTHER_DATABASE	6u
#define SENDER_ROLE			4711
#define SENDER_XID				UINT64_C(0x3f00000abc)

#define HEADER_SIZE		sizeof(HeraldBatchHeader)
#define BUDGET_ALL		UINT64_MAX
#define RECORDED_MAX	1024

#define UNUSED			__attribute__((unused))

/* Memory of exactly this many bytes, aligned for the shared structures. */
static inline void *
memory_new(size_t bytes)
{
	void	   *memory = NULL;

	assert_int_equal(posix_memalign(&memory, HERALD_CACHE_LINE, bytes), 0);
	memset(memory, 0xA5, bytes);
	return memory;
}

static inline HeraldQueue *
log_new(void)
{
	HeraldQueue  *queue = memory_new(herald_queue_bytes(HERALD_RING_MIN));

	herald_queue_init(queue, HERALD_RING_MIN);
	return queue;
}

/* An empty queue that has advanced to `position`, a multiple of the ring size. */
static inline HeraldQueue *
log_new_at(HeraldPosition position)
{
	HeraldQueue  *queue = log_new();

	atomic_store(&queue->head, position);
	atomic_store(&queue->tail, position);
	atomic_store(&queue->limit, position + queue->ring_size);
	atomic_store(&queue->dispatched, position);
	atomic_store(&queue->settled, position);
	return queue;
}

static inline uint64_t
word_at(HeraldQueue *queue, HeraldPosition position)
{
	return atomic_load(herald_queue_at(queue, position));
}

static inline void
set_word_at(HeraldQueue *queue, HeraldPosition position, uint64_t word)
{
	atomic_store(herald_queue_at(queue, position), word);
}

static inline HeraldBatchHeader *
header_at(HeraldQueue *queue, HeraldPosition position)
{
	return (HeraldBatchHeader *) herald_queue_at(queue, position);
}

static inline HeraldEntry *
entry_at(HeraldQueue *queue, HeraldPosition position)
{
	return (HeraldEntry *) herald_queue_at(queue, position);
}

/* Reserve a batch of these bytes and fill it; the ring must have room. */
static inline HeraldPosition
batch_reserve_bytes(HeraldQueue *queue, uint32_t database, const void *entries, uint64_t length)
{
	HeraldBatch batch = {.count = 1,.database = database,.role = SENDER_ROLE};
	HeraldPosition position;

	assert_true(herald_queue_reserve(queue, &batch, length, &position));
	herald_queue_fill(queue, position, entries, length);
	return position;
}

static inline HeraldPosition
batch_reserve(HeraldQueue *queue, uint32_t database, const char *channel, const char *payload)
{
	char		bytes[1024] __attribute__((aligned(8)));
	uint64_t	length = entry_write(bytes, channel, payload, strlen(payload));

	return batch_reserve_bytes(queue, database, bytes, length);
}

/* Reserved, filled and committed: a batch of one notification. */
static inline HeraldPosition
batch_send(HeraldQueue *queue, const char *payload)
{
	HeraldPosition position = batch_reserve(queue, DATABASE, "channel", payload);

	herald_queue_commit(queue, position, 1234, SENDER_XID);
	return position;
}

/* A batch of this many bytes, header included, with one entry that fills it. */
static inline HeraldPosition
batch_reserve_length(HeraldQueue *queue, uint64_t length, char fill)
{
	uint64_t	entry_length = length - HEADER_SIZE;
	size_t		payload_length = entry_length - sizeof(HeraldEntry) - HERALD_BODY_PID - 3;
	char	   *payload = malloc(payload_length);
	char	   *bytes = memory_new(entry_length);
	HeraldPosition position;

	memset(payload, fill, payload_length);
	assert_int_equal(entry_write(bytes, "c", payload, payload_length), entry_length);
	position = batch_reserve_bytes(queue, DATABASE, bytes, entry_length);
	free(payload);
	free(bytes);
	return position;
}

/* Move the head so that only `left` bytes of its segment are left. */
static inline void
leave_in_segment(HeraldQueue *queue, uint64_t left)
{
	HeraldPosition head = atomic_load(&queue->head);
	HeraldPosition position;

	position = batch_reserve_length(queue, herald_queue_next_segment(queue, head) - head - left, 'x');
	herald_queue_commit(queue, position, 0, SENDER_XID);
}

/* What a dispatcher saw, in order. */
typedef struct Recorder
{
	int			runs;
	HeraldPosition stretch_end;		/* of the last stretch */
	int			batches;
	HeraldPosition positions[RECORDED_MAX];
	HeraldQueue  *queue;			/* if set, check that publishing comes before marking */
	uint32_t	entry_listeners;	/* marks that each entry costs */
	int			entries;		/* marked */
	int			resumed;		/* calls that began in the middle of a batch */
} Recorder;

static UNUSED void
record_stretch(HeraldPosition end, void *arg)
{
	((Recorder *) arg)->runs++;
	((Recorder *) arg)->stretch_end = end;
}

static UNUSED uint64_t
record_batch(const HeraldBatchHeader *header, uint32_t *offset, uint64_t budget, void *arg)
{
	Recorder   *recorder = arg;
	uint64_t	cost = 0;

	assert_int_equal(herald_word_state(header->word), HERALD_BATCH_COMMITTED);
	assert_true(recorder->batches < RECORDED_MAX);
	if (*offset == HEADER_SIZE)
		recorder->positions[recorder->batches++] = herald_word_position(header->word);
	else
		recorder->resumed++;
	if (recorder->queue != NULL)
	{
		assert_true(atomic_load(&recorder->queue->dispatched) >=
					herald_word_position(header->word) + header->length);
		assert_true(atomic_load(&recorder->queue->settled) <= herald_word_position(header->word));
		assert_int_equal(atomic_load(&recorder->queue->dispatching), 1);
	}

	do
	{
		const HeraldEntry *entry = (const HeraldEntry *) ((const char *) header + *offset);

		if (!herald_entry_is_valid(entry, header->length - *offset))
		{
			*offset = header->length;	/* a batch of which only the header matters */
			break;
		}
		recorder->entries++;
		*offset += entry->length;
		cost += entry->length + recorder->entry_listeners * HERALD_COST_OF_MARK;
	} while (*offset < header->length && cost < budget);
	return cost;
}

static inline HeraldSequencerResult
dispatch(HeraldQueue *queue, uint64_t budget, Recorder *recorder)
{
	HeraldSequencerCalls calls = {
		.stretch_begins = record_stretch,.mark_batch = record_batch,.arg = recorder
	};

	recorder->queue = queue;
	return herald_sequencer_run(queue, budget, &calls);
}

/* Dispatch all finished batches; returns their number. */
static inline int
dispatch_all(HeraldQueue *queue)
{
	Recorder	recorder = {0};

	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(atomic_load(&queue->dispatching), 0);
	assert_int_equal(atomic_load(&queue->settled), atomic_load(&queue->dispatched));
	return recorder.batches;
}

/* The next message, from any number of chunks; else the first other result. */
static inline HeraldReadResult
read_next(HeraldReader *reader, HeraldMessage *message)
{
	for (int i = 0; i < 100000; i++)
	{
		HeraldReadResult result = herald_reader_next(reader, message);

		if (result != HERALD_READ_REFILLED)
			return result;
	}
	fail_msg("the reader does not come to an end");
	return HERALD_READ_END;
}

/* Like read_next(); as a listener does, enlarges a buffer that is too small. */
static inline HeraldReadResult
read_growing(HeraldReader *reader, HeraldMessage *message)
{
	HeraldReadResult result;

	while ((result = read_next(reader, message)) == HERALD_READ_ROOM)
	{
		uint64_t	room = HERALD_ALIGN_UP(reader->room_needed);

		assert_true(room > reader->buffer_size);
		free(reader->buffer);
		herald_reader_set_buffer(reader, memory_new(room), room);
	}
	return result;
}

static inline void
assert_next(HeraldReader *reader, const char *payload)
{
	HeraldMessage message;

	assert_int_equal(read_growing(reader, &message), HERALD_READ_MESSAGE);
	assert_int_equal(message.entry->kind, HERALD_ENTRY_NOTIFICATION);
	assert_string_equal(herald_entry_payload(message.entry), payload);
	assert_int_equal(message.sender.role, SENDER_ROLE);
	assert_true(message.sender.xid == SENDER_XID);
}

#endif							/* HERALD_TEST_SUPPORT_H */
