/*-------------------------------------------------------------------------
 *
 * queue.c
 *	  The shared queue of batches: reserving, filling, finishing, recycling.
 *
 * Logically the queue is an endless array of bytes.  A sender reserves the next range by
 * moving the head, writes its batch there, and sets the batch's first word when the
 * transaction has become visible (or has aborted).  Listeners read in order and never wait for
 * a sender.
 *
 * Memory is finite, so the array is a ring of segments, and a segment is reused once no
 * listener needs its contents.  These positions say which process may do what:
 *
 *		tail ........ dispatched ........ head ........ limit
 *		  |  listeners may  |  senders are   |  zero, and  |
 *		  |  be reading     |  writing       |  free       |
 *
 * The danger of a ring is that a reader takes old bytes for new ones.  Users choose the
 * payloads, so a payload can contain any pattern: a reader must never look for a header where
 * an old payload may still be.  Therefore a segment is zeroed before the limit is moved over
 * it.  A batch's word is then either zero (its sender has moved the head but not yet written
 * the header) or the word that this sender wrote.  So a reservation is one compare-and-swap of
 * the head; no lock is taken, and a process that is suspended at that point does not make
 * others spin.
 *
 * Readers of old bytes are protected in two ways.  A listener with something pending pins its
 * position (herald_wakeup_needed()), so that the tail never passes it.  And a reader checks
 * the tail after it has copied (queue_reader.c), so that no reader uses overwritten bytes even
 * where the pin is given up on purpose.
 *
 * Positions are 64 bits and never wrap: at 10 GB/s they last 58 years.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "queue.h"

#include <string.h>

#include "stop_point.h"

/* Index of the commit end in a batch that begins with a HERALD_ENTRY_COMMIT, in words. */
#define COMMIT_END_WORD \
	((sizeof(HeraldBatchHeader) + sizeof(HeraldEntry) + offsetof(HeraldCommitId, end)) / HERALD_ALIGN)

static void write_header(HeraldQueue *queue, HeraldPosition position,
						 const HeraldBatch *batch, uint64_t length);
static bool begins_with_commit(HeraldQueue *queue, HeraldPosition position);
static void set_word(HeraldQueue *queue, HeraldPosition position, size_t index, uint64_t word);
static void finish(HeraldQueue *queue, HeraldPosition position, HeraldBatchState state);
static void zero(HeraldQueue *queue, HeraldPosition from, HeraldPosition to);


uint64_t
herald_queue_ring_size(uint64_t wanted)
{
	uint64_t	size = HERALD_RING_MIN;

	while (size * 2 <= wanted && size < HERALD_RING_MAX)
		size *= 2;
	return size;
}

size_t
herald_queue_bytes(uint64_t ring_size)
{
	return sizeof(HeraldQueue) + ring_size;
}

void
herald_queue_init(HeraldQueue *queue, uint64_t ring_size)
{
	/* Start one lap up, so that no batch has position zero. */
	HeraldPosition start = ring_size;

	assert(ring_size >= HERALD_RING_MIN && (ring_size & (ring_size - 1)) == 0);

	memset((void *) queue, 0, herald_queue_bytes(ring_size));
	queue->ring_size = ring_size;
	queue->segment_size = ring_size / HERALD_SEGMENTS;
	atomic_init(&queue->head, start);
	atomic_init(&queue->tail, start);
	atomic_init(&queue->limit, start + ring_size);
	atomic_init(&queue->dispatched, start);
	atomic_init(&queue->settled, start);
}

uint64_t
herald_queue_batch_max(const HeraldQueue *queue)
{
	return queue->segment_size - sizeof(HeraldBatchHeader);
}

bool
herald_queue_reserve(HeraldQueue *queue, const HeraldBatch *batch,
					 uint64_t entries_length, HeraldPosition *position)
{
	uint64_t	length = sizeof(HeraldBatchHeader) + entries_length;
	HeraldPosition head = atomic_load_explicit(&queue->head, memory_order_relaxed);
	HeraldPosition start;
	HeraldPosition next_segment;

	assert(entries_length % HERALD_ALIGN == 0);
	assert(entries_length <= herald_queue_batch_max(queue));

	/*
	 * Read before writing, and before any process can wait for this batch.
	 * The ring's pages exist, but each process has to map them: on a first
	 * read Linux maps sixteen pages at a time, on a first write only one.
	 */
	(void) *(volatile _Atomic uint64_t *) herald_queue_at(queue, head);

	do
	{
		next_segment = herald_queue_next_segment(queue, head);
		start = (head + length <= next_segment) ? head : next_segment;

		/*
		 * [L1] acquire: pairs with the release in herald_queue_recycle(); the
		 * ring has been zeroed up to this limit.
		 */
		if (start + length > atomic_load_explicit(&queue->limit, memory_order_acquire))
			return false;

		/*
		 * [L2] release: pairs with the acquire in scan() of sequencer.c; a
		 * backend that sees the new head also sees zero, or the words that we
		 * write below, and no bytes of an older lap.  [D1] Sequentially
		 * consistent, because has_finished() in sequencer.c looks at the head
		 * as well.
		 */
	} while (!atomic_compare_exchange_weak_explicit(&queue->head, &head, start + length,
													memory_order_seq_cst,
													memory_order_relaxed));

	if (start != head)
		atomic_store_explicit(herald_queue_at(queue, head),
							  herald_word_make(head, HERALD_BATCH_FILLER),
							  memory_order_release);

	write_header(queue, start, batch, length);
	*position = start;
	return true;
}

/* The word with the state is written last: until then the batch looks untouched. */
static void
write_header(HeraldQueue *queue, HeraldPosition position, const HeraldBatch *batch, uint64_t length)
{
	HeraldBatchHeader header = {
		.word = herald_word_make(position, HERALD_BATCH_RESERVED),
		.length = (uint32_t) length,
		.count = batch->count,
		.database = batch->database,
		.role = batch->role,
	};
	_Atomic uint64_t *to = herald_queue_at(queue, position);
	uint64_t	words[HERALD_HEADER_WORDS];

	memcpy(words, &header, sizeof(words));
	for (size_t i = HERALD_HEADER_WORDS; i-- > 0;)
		atomic_store_explicit(&to[i], words[i], memory_order_release);
}

/*
 * Word by word, and atomically: a reader that was overrun may be copying the same words for
 * their previous content.  It notices that afterwards by the tail; but a racing non-atomic
 * access would be undefined behavior.
 */
void
herald_queue_fill(HeraldQueue *queue, HeraldPosition position,
				  const void *entries, uint64_t entries_length)
{
	_Atomic uint64_t *to = herald_queue_at(queue, position) + HERALD_HEADER_WORDS;
	const char *from = entries;

	for (uint64_t i = 0; i < entries_length / HERALD_ALIGN; i++)
	{
		uint64_t	word;

		memcpy(&word, from + i * HERALD_ALIGN, HERALD_ALIGN);

		/* [L3] release: pairs with the acquire in herald_queue_copy(). */
		atomic_store_explicit(&to[i], word, memory_order_release);
	}
}

void
herald_queue_set_commit_end(HeraldQueue *queue, HeraldPosition position, uint64_t commit_end)
{
	/* [L3] release: as in herald_queue_fill() */
	if (begins_with_commit(queue, position))
		atomic_store_explicit(&herald_queue_at(queue, position)[COMMIT_END_WORD], commit_end, memory_order_release);
}

/* By the owner: it is the only process that has written these bytes. */
static bool
begins_with_commit(HeraldQueue *queue, HeraldPosition position)
{
	const HeraldBatchHeader *header = (const HeraldBatchHeader *) herald_queue_at(queue, position);

	return header->length >= sizeof(*header) + HERALD_COMMIT_LENGTH &&
		((const HeraldEntry *) (header + 1))->kind == HERALD_ENTRY_COMMIT;
}

void
herald_queue_commit(HeraldQueue *queue, HeraldPosition position, int64_t commit_time, uint64_t xid)
{
	set_word(queue, position, HERALD_HEADER_COMMIT_TIME, (uint64_t) commit_time);
	set_word(queue, position, HERALD_HEADER_XID, xid);
	finish(queue, position, HERALD_BATCH_COMMITTED);
}

void
herald_queue_abort(HeraldQueue *queue, HeraldPosition position)
{
	finish(queue, position, HERALD_BATCH_ABORTED);
}

/* Set a word of a batch's header. */
static void
set_word(HeraldQueue *queue, HeraldPosition position, size_t index, uint64_t word)
{
	atomic_store_explicit(&herald_queue_at(queue, position)[index], word, memory_order_release);
}

/*
 * [D1] sequentially consistent, as is the try-lock that follows it in herald_sequencer_run():
 * either our try-lock comes after the current dispatcher has released the lock, or that
 * dispatcher's last look comes after this store.  It is also the release that makes the
 * batch's bytes visible to the dispatcher.
 */
static void
finish(HeraldQueue *queue, HeraldPosition position, HeraldBatchState state)
{
	_Atomic uint64_t *word = herald_queue_at(queue, position);

	assert(atomic_load_explicit(word, memory_order_relaxed) ==
		   herald_word_make(position, HERALD_BATCH_RESERVED));
	atomic_store_explicit(word, herald_word_make(position, state), memory_order_seq_cst);
}

bool
herald_queue_recycle(HeraldQueue *queue, HeraldPosition needed)
{
	HeraldPosition new_tail = needed & ~(queue->segment_size - 1);
	HeraldPosition old_tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	if (new_tail <= old_tail)
		return false;

	/*
	 * First declare these bytes invalid, then change them.  [L3] The stores
	 * in zero() and herald_queue_fill() are releases, so that a reader which
	 * sees one of them sees the new tail too.  [F1] release: pairs with
	 * herald_queue_copy(); a reader that finds the bytes gone also sees that
	 * they were saved before.
	 */
	atomic_store_explicit(&queue->tail, new_tail, memory_order_release);
	HERALD_HOLD_POINT("tail-moved");
	zero(queue, old_tail, new_tail);

	/* [L1] release: pairs with the acquire in herald_queue_reserve(). */
	atomic_store_explicit(&queue->limit, new_tail + queue->ring_size, memory_order_release);
	return true;
}

bool
herald_queue_is_short(HeraldQueue *queue)
{
	/* Load the head first, so that the limit is not less than it. */
	HeraldPosition head = atomic_load_explicit(&queue->head, memory_order_acquire);

	return atomic_load_explicit(&queue->limit, memory_order_relaxed) - head < queue->segment_size;
}

static void
zero(HeraldQueue *queue, HeraldPosition from, HeraldPosition to)
{
	while (from < to)
	{
		HeraldPosition border = herald_queue_next_segment(queue, from);
		_Atomic uint64_t *word = herald_queue_at(queue, from);

		for (uint64_t i = 0; i < (border - from) / HERALD_ALIGN; i++)
			atomic_store_explicit(&word[i], 0, memory_order_release);
		from = border;
	}
}
