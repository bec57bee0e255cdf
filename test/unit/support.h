/*-------------------------------------------------------------------------
 *
 * support.h
 *	  What the unit tests of core/ share: logs, batches and entries by hand.
 *
 * Memory that a test hands to core/ is allocated to the byte, so that the
 * address sanitizer sees every read outside of it.
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

#include "dispatcher.h"
#include "entry.h"
#include "log_reader.h"

#define DATABASE		5u		/* the listener's */
#define OTHER_DATABASE	6u
#define SENDER_PID		4711

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

static inline HeraldLog *
log_new(void)
{
	HeraldLog  *log = memory_new(herald_log_memory(HERALD_RING_MIN));

	herald_log_init(log, HERALD_RING_MIN);
	return log;
}

/* An empty log that has come as far as `position`, a multiple of the ring size. */
static inline HeraldLog *
log_new_at(HeraldPosition position)
{
	HeraldLog  *log = log_new();

	atomic_store(&log->head, position);
	atomic_store(&log->tail, position);
	atomic_store(&log->limit, position + log->ring_size);
	atomic_store(&log->dispatched, position);
	atomic_store(&log->settled, position);
	return log;
}

static inline uint64_t
word_at(HeraldLog *log, HeraldPosition position)
{
	return atomic_load(herald_log_at(log, position));
}

static inline void
set_word_at(HeraldLog *log, HeraldPosition position, uint64_t word)
{
	atomic_store(herald_log_at(log, position), word);
}

static inline HeraldBatchHeader *
header_at(HeraldLog *log, HeraldPosition position)
{
	return (HeraldBatchHeader *) herald_log_at(log, position);
}

static inline HeraldEntry *
entry_at(HeraldLog *log, HeraldPosition position)
{
	return (HeraldEntry *) herald_log_at(log, position);
}

/* Reserve a batch of these bytes and fill it; the ring must have room. */
static inline HeraldPosition
batch_reserve_bytes(HeraldLog *log, uint32_t database, const void *entries, uint64_t length)
{
	HeraldBatch batch = {.count = 1,.database = database,.sender_pid = SENDER_PID};
	HeraldPosition position;

	assert_true(herald_log_reserve(log, &batch, length, &position));
	herald_log_fill(log, position, entries, length);
	return position;
}

static inline HeraldPosition
batch_reserve(HeraldLog *log, uint32_t database, const char *channel, const char *payload)
{
	char		bytes[1024] __attribute__((aligned(8)));
	uint64_t	length = entry_write(bytes, channel, payload, strlen(payload));

	return batch_reserve_bytes(log, database, bytes, length);
}

/* Reserved, filled and committed: a batch of one notification. */
static inline HeraldPosition
batch_send(HeraldLog *log, const char *payload)
{
	HeraldPosition position = batch_reserve(log, DATABASE, "channel", payload);

	herald_log_commit(log, position, 1234);
	return position;
}

/* A batch of this many bytes, header included, with one entry that fills it. */
static inline HeraldPosition
batch_reserve_length(HeraldLog *log, uint64_t length, char fill)
{
	uint64_t	entry_length = length - HEADER_SIZE;
	size_t		payload_length = entry_length - sizeof(HeraldEntry) - HERALD_BODY_PID - 3;
	char	   *payload = malloc(payload_length);
	char	   *bytes = memory_new(entry_length);
	HeraldPosition position;

	memset(payload, fill, payload_length);
	assert_int_equal(entry_write(bytes, "c", payload, payload_length), entry_length);
	position = batch_reserve_bytes(log, DATABASE, bytes, entry_length);
	free(payload);
	free(bytes);
	return position;
}

/* Move the head so that only `left` bytes of its segment are left. */
static inline void
leave_in_segment(HeraldLog *log, uint64_t left)
{
	HeraldPosition head = atomic_load(&log->head);
	HeraldPosition position;

	position = batch_reserve_length(log, herald_log_next_segment(log, head) - head - left, 'x');
	herald_log_commit(log, position, 0);
}

/* What a dispatcher saw, in order. */
typedef struct Recorder
{
	int			runs;
	int			batches;
	HeraldPosition positions[RECORDED_MAX];
	HeraldLog  *log;			/* if set, checked: published before marked */
	uint32_t	entry_listeners;	/* each entry costs that many marks */
	int			entries;		/* that were marked */
	int			resumed;		/* calls that began in the midst of a batch */
} Recorder;

static UNUSED void
record_run(void *arg)
{
	((Recorder *) arg)->runs++;
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
	if (recorder->log != NULL)
	{
		assert_true(atomic_load(&recorder->log->dispatched) >=
					herald_word_position(header->word) + header->length);
		assert_true(atomic_load(&recorder->log->settled) <= herald_word_position(header->word));
		assert_int_equal(atomic_load(&recorder->log->dispatching), 1);
	}

	do
	{
		const HeraldEntry *entry = (const HeraldEntry *) ((const char *) header + *offset);

		if (!herald_entry_is_valid(entry, header->length - *offset))
		{
			*offset = header->length;	/* a batch whose header alone matters */
			break;
		}
		recorder->entries++;
		*offset += entry->length;
		cost += entry->length + recorder->entry_listeners * HERALD_COST_OF_MARK;
	} while (*offset < header->length && cost < budget);
	return cost;
}

static inline HeraldDispatchResult
dispatch(HeraldLog *log, uint64_t budget, Recorder *recorder)
{
	HeraldDispatchCalls calls = {
		.run_begins = record_run,.mark_batch = record_batch,.arg = recorder
	};

	recorder->log = log;
	return herald_dispatch(log, budget, &calls);
}

/* Dispatch whatever is finished; returns how many batches that was. */
static inline int
dispatch_all(HeraldLog *log)
{
	Recorder	recorder = {0};

	assert_int_equal(dispatch(log, BUDGET_ALL, &recorder), HERALD_DISPATCH_DONE);
	assert_int_equal(atomic_load(&log->dispatching), 0);
	assert_int_equal(atomic_load(&log->settled), atomic_load(&log->dispatched));
	return recorder.batches;
}

/* The next message, however many chunks it takes; else the first other result. */
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

#endif							/* HERALD_TEST_SUPPORT_H */
