/*-------------------------------------------------------------------------
 *
 * test_sequencer.c
 *	  Unit tests of sequencer.c, on half-finished logs written by hand.
 *
 * Guards: batches are dispatched in the queue's order, each once, none before
 * all earlier ones are finished, and none is left behind [D1].
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "support.h"

/* Guards: with an empty queue nothing is done, and the lock is released. */
static void
test_empty(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();

	assert_int_equal(dispatch_all(queue), 0);
	assert_int_equal(atomic_load(&queue->dispatched), atomic_load(&queue->head));
	free(queue);
}

/* Guards: committed batches only, in order; `settled` follows `dispatched`. */
static void
test_order(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition sent[10];
	Recorder	recorder = {0};

	for (int i = 0; i < 10; i++)
	{
		sent[i] = batch_reserve(queue, i % 3 ? DATABASE : OTHER_DATABASE, "c", "p");
		herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	}
	for (int i = 9; i >= 0; i--)
		herald_queue_commit(queue, sent[i], i, SENDER_XID);

	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.runs, 1);
	assert_int_equal(recorder.batches, 10);
	assert_memory_equal(recorder.positions, sent, sizeof(sent));
	assert_int_equal(atomic_load(&queue->settled), atomic_load(&queue->head));
	assert_int_equal(dispatch_all(queue), 0);
	free(queue);
}

/* Guards: a batch reserved and never finished holds back all behind it. */
static void
test_unfinished(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition before = batch_send(queue, "before");
	HeraldPosition open = batch_reserve(queue, DATABASE, "c", "open");
	HeraldPosition behind = batch_send(queue, "behind");
	Recorder	recorder = {0};

	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.batches, 1);
	assert_int_equal(recorder.positions[0], before);
	assert_int_equal(atomic_load(&queue->dispatched), open);
	assert_int_equal(dispatch_all(queue), 0);

	herald_queue_commit(queue, open, 0, SENDER_XID);
	recorder = (Recorder) {0};
	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.batches, 2);
	assert_int_equal(recorder.positions[0], open);
	assert_int_equal(recorder.positions[1], behind);
	free(queue);
}

/* Guards: an aborted batch is passed over, even if it is the only one. */
static void
test_aborted(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition open = batch_reserve(queue, DATABASE, "c", "open");

	herald_queue_abort(queue, batch_reserve(queue, DATABASE, "c", "never"));
	assert_int_equal(dispatch_all(queue), 0);
	assert_int_equal(atomic_load(&queue->dispatched), open);
	herald_queue_abort(queue, open);
	assert_int_equal(dispatch_all(queue), 0);
	assert_int_equal(atomic_load(&queue->dispatched), atomic_load(&queue->head));
	free(queue);
}

/*
 * Guards: a sender suspended between moving the head and writing its header holds
 * back the next sender, which has finished.
 */
static void
test_header_not_written(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition at = atomic_load(&queue->head);
	HeraldBatchHeader *header = header_at(queue, at);

	atomic_store(&queue->head, at + 64);
	batch_send(queue, "behind");
	assert_int_equal(dispatch_all(queue), 0);
	assert_int_equal(atomic_load(&queue->dispatched), at);

	/* Then the header is written, its first word last: it counts only with that word. */
	header->length = 64;
	header->count = 1;
	header->database = DATABASE;
	assert_int_equal(dispatch_all(queue), 0);
	set_word_at(queue, at, herald_word_make(at, HERALD_BATCH_RESERVED));
	assert_int_equal(dispatch_all(queue), 0);
	herald_queue_commit(queue, at, 0, SENDER_XID);
	assert_int_equal(dispatch_all(queue), 2);
	free(queue);
}

/*
 * Guards: the same at a border: the filler is not written yet, the batch behind it is
 * finished.
 */
static void
test_filler_not_written(void **state UNUSED)
{
	for (uint64_t left = 8; left <= 64; left += 8)
	{
		HeraldQueue  *queue = log_new();
		HeraldPosition border = atomic_load(&queue->head) + queue->segment_size;
		HeraldPosition at;

		leave_in_segment(queue, left);
		assert_int_equal(dispatch_all(queue), 1);
		at = batch_reserve_length(queue, 128, 'b');
		assert_int_equal(at, border);
		herald_queue_commit(queue, at, 0, SENDER_XID);

		set_word_at(queue, border - left, 0);
		assert_int_equal(dispatch_all(queue), 0);
		assert_int_equal(atomic_load(&queue->dispatched), border - left);
		set_word_at(queue, border - left,
					herald_word_make(border - left, HERALD_BATCH_FILLER));
		assert_int_equal(dispatch_all(queue), 1);
		free(queue);
	}
}

/* Guards: a filler whose batch is not finished: only the border is passed. */
static void
test_filler_then_unfinished(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition border = atomic_load(&queue->head) + queue->segment_size;
	HeraldPosition at;

	leave_in_segment(queue, 8);
	at = batch_reserve(queue, DATABASE, "c", "open");
	assert_int_equal(dispatch_all(queue), 1);
	assert_int_equal(atomic_load(&queue->dispatched), border);
	herald_queue_commit(queue, at, 0, SENDER_XID);
	assert_int_equal(dispatch_all(queue), 1);
	free(queue);
}

/* Guards: the bytes of a call are bounded, and nothing is lost between calls. */
static void
test_budget(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Recorder	recorder = {0};
	int			sent = 0;
	int			calls = 0;

	for (; sent < 100; sent++)
		herald_queue_commit(queue, batch_reserve_length(queue, 4096, 'b'), 0, SENDER_XID);

	assert_int_equal(dispatch(queue, 0, &recorder), HERALD_SEQUENCER_MORE);
	assert_int_equal(recorder.batches, 0);

	while (dispatch(queue, 15 * 4096 + 1, &recorder) == HERALD_SEQUENCER_MORE)
	{
		assert_int_equal(recorder.runs, ++calls);
		assert_true(recorder.batches <= calls * 16);
		assert_int_equal(atomic_load(&queue->dispatching), 0);
	}
	assert_int_equal(recorder.batches, sent);
	assert_int_equal(calls, 6);
	for (int i = 1; i < sent; i++)
		assert_true(recorder.positions[i - 1] < recorder.positions[i]);
	assert_int_equal(dispatch(queue, 0, &recorder), HERALD_SEQUENCER_DONE);
	free(queue);
}

/*
 * Guards: listeners that are marked count as well as bytes.  A call ends after the
 * batch that has used up the budget, in the middle of a run: marked batches are
 * settled, published ones remain so, and the next call goes on from there.
 */
static void
test_budget_of_marks(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Recorder	recorder = {.entry_listeners = 1000};
	HeraldPosition sent[100];

	for (int i = 0; i < 100; i++)
		sent[i] = batch_send(queue, "for many");

	for (int calls = 1; calls <= 20; calls++)
	{
		assert_int_equal(dispatch(queue, 5 * 1000 * HERALD_COST_OF_MARK, &recorder),
						 calls < 20 ? HERALD_SEQUENCER_MORE : HERALD_SEQUENCER_DONE);
		assert_int_equal(recorder.batches, calls * 5);
		assert_int_equal(recorder.runs, calls);
		assert_int_equal(recorder.stretch_end, atomic_load(&queue->head));
		assert_int_equal(atomic_load(&queue->dispatched), atomic_load(&queue->head));
		assert_int_equal(atomic_load(&queue->settled),
						 calls < 20 ? sent[calls * 5] : atomic_load(&queue->head));
		assert_int_equal(atomic_load(&queue->dispatching), 0);
	}
	assert_memory_equal(recorder.positions, sent, sizeof(sent));
	assert_int_equal(recorder.resumed, 0);
	assert_int_equal(dispatch_all(queue), 0);
	free(queue);
}

/*
 * Guards: one batch with more listeners than the budget allows is marked in several
 * calls, each entry once, at least one entry in each call; it is settled when all
 * its entries are marked.
 */
static void
test_budget_within_a_batch(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Recorder	recorder = {.entry_listeners = 1000};
	char		bytes[10 * 1024] __attribute__((aligned(8)));
	uint64_t	length = 0;
	HeraldPosition large;
	HeraldPosition behind;
	HeraldPosition progress = 0;

	for (int i = 0; i < 100; i++)
		length += entry_write(bytes + length, "channel", "payload", 7);
	large = batch_reserve_bytes(queue, DATABASE, bytes, length);
	behind = batch_send(queue, "behind");
	herald_queue_commit(queue, large, 0, SENDER_XID);

	for (int calls = 1; calls <= 10; calls++)
	{
		assert_int_equal(dispatch(queue, 10 * 1000 * HERALD_COST_OF_MARK, &recorder),
						 HERALD_SEQUENCER_MORE);
		assert_int_equal(recorder.entries, calls * 10);
		assert_int_equal(recorder.batches, 1);
		assert_int_equal(recorder.resumed, calls - 1);
		assert_int_equal(recorder.stretch_end, atomic_load(&queue->head));
		assert_int_equal(atomic_load(&queue->settled), calls < 10 ? large : behind);
		assert_true(atomic_load(&queue->settled) + atomic_load(&queue->mark_offset) > progress);
		progress = atomic_load(&queue->settled) + atomic_load(&queue->mark_offset);
	}
	assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.entries, 101);
	assert_int_equal(atomic_load(&queue->settled), atomic_load(&queue->head));

	/* The same batch once more, an entry at a time. */
	recorder = (Recorder) {.entry_listeners = 1};
	large = batch_reserve_bytes(queue, DATABASE, bytes, length);
	herald_queue_commit(queue, large, 0, SENDER_XID);
	for (int calls = 1; calls < 100; calls++)
		assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_MORE);
	assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.entries, 100);
	assert_int_equal(recorder.batches, 1);
	free(queue);
}

/* Guards: the next call marks the rest, even if nothing new is finished, or it is damaged. */
static void
test_rest_before_damage(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Recorder	recorder = {.entry_listeners = 1000};
	HeraldPosition bad;

	for (int i = 0; i < 3; i++)
		batch_send(queue, "one");
	bad = batch_reserve(queue, DATABASE, "c", "open");
	assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_MORE);
	assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_MORE);
	set_word_at(queue, bad, UINT64_MAX);
	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DAMAGED);
	assert_int_equal(recorder.batches, 3);
	assert_int_equal(atomic_load(&queue->settled), bad);
	free(queue);
}

/* Guards: no budget is spent on a batch that is still open. */
static void
test_budget_and_unfinished(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Recorder	recorder = {0};

	batch_send(queue, "one");
	batch_reserve(queue, DATABASE, "c", "open");
	batch_send(queue, "two");
	assert_int_equal(dispatch(queue, 1, &recorder), HERALD_SEQUENCER_DONE);
	assert_int_equal(recorder.batches, 1);
	free(queue);
}

/*
 * Guards [D1]: if another process holds the lock, we leave our batch to it without
 * touching anything; it finds our batch when it looks again.
 */
static void
test_lock_held(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = atomic_load(&queue->dispatched);
	Recorder	recorder = {0};

	atomic_store(&queue->dispatching, 1);
	batch_send(queue, "mine");
	assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_ELSEWHERE);
	assert_int_equal(recorder.runs, 0);
	assert_int_equal(atomic_load(&queue->dispatching), 1);
	assert_int_equal(atomic_load(&queue->dispatched), first);

	atomic_store(&queue->dispatching, 0);
	assert_int_equal(dispatch_all(queue), 1);
	free(queue);
}

/* What happens while a dispatcher is in the middle of its marking. */
typedef struct Meanwhile
{
	HeraldQueue  *queue;
	int			left;			/* how many more batches are finished meanwhile */
	int			marked;
	int			refused;
} Meanwhile;

static uint64_t
mark_meanwhile(const HeraldBatchHeader *header, uint32_t *offset, uint64_t budget UNUSED, void *arg)
{
	Meanwhile  *meanwhile = arg;
	Recorder	nobody = {0};

	assert_int_equal(header->database, DATABASE);
	meanwhile->marked++;
	*offset = header->length;
	if (meanwhile->left-- > 0)
	{
		batch_send(meanwhile->queue, "meanwhile");
		if (dispatch(meanwhile->queue, BUDGET_ALL, &nobody) == HERALD_SEQUENCER_ELSEWHERE)
			meanwhile->refused++;
	}
	return header->length;
}

static void
stretch_begins_unheeded(HeraldPosition end UNUSED, void *arg UNUSED)
{
}

/* Guards [D1]: batches that are finished while we dispatch are dispatched by us. */
static void
test_finished_meanwhile(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	Meanwhile	meanwhile = {.queue = queue,.left = 50};
	HeraldSequencerCalls calls = {stretch_begins_unheeded, mark_meanwhile, &meanwhile};

	batch_send(queue, "first");
	assert_int_equal(herald_sequencer_run(queue, BUDGET_ALL, &calls), HERALD_SEQUENCER_DONE);
	assert_int_equal(meanwhile.marked, 51);
	assert_int_equal(meanwhile.refused, 50);
	assert_int_equal(atomic_load(&queue->settled), atomic_load(&queue->head));

	/* With the budget used up, the result says that there is more. */
	meanwhile = (Meanwhile) {.queue = queue,.left = 1};
	batch_send(queue, "first");
	assert_int_equal(herald_sequencer_run(queue, 1, &calls), HERALD_SEQUENCER_MORE);
	assert_int_equal(herald_sequencer_run(queue, 1, &calls), HERALD_SEQUENCER_DONE);
	assert_int_equal(meanwhile.marked, 2);
	free(queue);
}

/* Guards: a word that does not belong to its position stops the dispatcher, which unlocks. */
static void
test_damaged_word(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();
	HeraldPosition first = batch_send(queue, "one");
	HeraldPosition bad = batch_send(queue, "bad");
	const uint64_t words[] = {
		1, 2, 3, 4, UINT64_MAX,
		herald_word_make(bad, HERALD_BATCH_CLEAR),
		herald_word_make(bad, 6), herald_word_make(bad, 7),
		herald_word_make(first, HERALD_BATCH_COMMITTED),
		herald_word_make(bad - queue->ring_size, HERALD_BATCH_ABORTED),
		herald_word_make(bad + queue->ring_size, HERALD_BATCH_COMMITTED),
		herald_word_make(bad + queue->ring_size, HERALD_BATCH_FILLER),
		herald_word_make(bad + 8, HERALD_BATCH_RESERVED),
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
	{
		Recorder	recorder = {0};

		set_word_at(queue, bad, words[i]);
		assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DAMAGED);
		assert_int_equal(recorder.batches, i == 0 ? 1 : 0);
		assert_int_equal(atomic_load(&queue->dispatched), bad);
		assert_int_equal(atomic_load(&queue->settled), bad);
		assert_int_equal(atomic_load(&queue->dispatching), 0);
	}
	free(queue);
}

/* Guards: a length that leads out of the segment, or nowhere, stops it too. */
static void
test_damaged_length(void **state UNUSED)
{
	static const uint32_t lengths[] = {
		0, 1, 8, 24, 31, 33, 60, 65, 65536, 1 << 20, INT32_MAX,
		(uint32_t) INT32_MAX + 1, UINT32_MAX - 7, UINT32_MAX
	};
	HeraldQueue  *queue = log_new();
	HeraldPosition bad;

	batch_send(queue, "one");
	bad = batch_send(queue, "bad");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (unsigned s = HERALD_BATCH_COMMITTED; s <= HERALD_BATCH_ABORTED; s++)
		{
			Recorder	recorder = {0};

			set_word_at(queue, bad, herald_word_make(bad, s));
			header_at(queue, bad)->length = lengths[i];
			assert_int_equal(dispatch(queue, BUDGET_ALL, &recorder), HERALD_SEQUENCER_DAMAGED);
			assert_int_equal(atomic_load(&queue->dispatched), bad);
		}
	free(queue);
}

/* Guards: batches at the very end of the ring are dispatched (sanitizer behind it). */
static void
test_ring_end(void **state UNUSED)
{
	HeraldQueue  *queue = log_new();

	for (int i = 0; i < HERALD_SEGMENTS; i++)
		leave_in_segment(queue, i == HERALD_SEGMENTS - 1 ? 8 : 0);
	assert_int_equal(dispatch_all(queue), HERALD_SEGMENTS);
	assert_true(herald_queue_recycle(queue, atomic_load(&queue->settled)));
	batch_send(queue, "next lap");
	assert_int_equal(dispatch_all(queue), 1);
	assert_true(atomic_load(&queue->dispatched) > 2 * queue->ring_size);
	free(queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_aborted),
		cmocka_unit_test(test_header_not_written),
		cmocka_unit_test(test_filler_not_written),
		cmocka_unit_test(test_filler_then_unfinished),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_budget_of_marks),
		cmocka_unit_test(test_budget_within_a_batch),
		cmocka_unit_test(test_rest_before_damage),
		cmocka_unit_test(test_budget_and_unfinished),
		cmocka_unit_test(test_lock_held),
		cmocka_unit_test(test_finished_meanwhile),
		cmocka_unit_test(test_damaged_word),
		cmocka_unit_test(test_damaged_length),
		cmocka_unit_test(test_ring_end),
	};

	return cmocka_run_group_tests_name("dispatcher", tests, NULL, NULL);
}
