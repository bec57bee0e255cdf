/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Has everything come to rest, and did each listener receive what was sent?
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "stress.h"

static const char *const state_names[] = {
	"FREE", "IDLE", "PENDING", "SIGNALLED", "PROCESSING", "AGAIN", "BUSY", "BUSY_PENDING"
};

static bool nobody_is_woken(void);
static uint32_t woken_sum(void);
static bool set_has(uint32_t slot);
static bool set_is_empty(void);
static void verify_kept(uint32_t database);
static void verify_session(const Listener *listener, const Session *session, const char *which);


/*
 * All listeners are asleep, and nothing is left that would wake one.  None may
 * have been woken during the check.
 */
bool
world_is_quiet(void)
{
	uint32_t	woken = woken_sum();
	HeraldQueue  *queue = world.queue;

	return nobody_is_woken() &&
		atomic_load(&world.leftovers) == 0 &&
		atomic_load(&queue->dispatching) == 0 &&
		atomic_load(&queue->settled) == atomic_load(&queue->head) &&
		atomic_load(&world.wakeup->turns_out) == 0 &&
		set_is_empty() &&
		nobody_is_woken() && woken_sum() == woken;
}

static bool
nobody_is_woken(void)
{
	for (int i = 0; i < LISTENERS; i++)
	{
		Listener   *listener = &world.listeners[i];
		uint64_t	word = atomic_load(herald_wakeup_word(world.wakeup, listener->slot));

		if (atomic_load(&listener->parked) == 0 || atomic_load(&listener->reasons) != 0 ||
			herald_word_state(word) != HERALD_LISTENER_IDLE)
			return false;
	}
	return true;
}

static uint32_t
woken_sum(void)
{
	uint32_t	sum = 0;

	for (int i = 0; i < LISTENERS; i++)
		sum += atomic_load(&world.listeners[i].woken);
	return sum;
}

static bool
set_has(uint32_t slot)
{
	_Atomic uint64_t *set = (_Atomic uint64_t *) herald_wakeup_turn(world.wakeup, SLOTS);

	return atomic_load(&set[slot / 64]) >> (slot % 64) & 1;
}

static bool
set_is_empty(void)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		if (set_has(slot))
			return false;
	return true;
}

/* Nothing is left over, and each listener received what was sent. */
void
world_verify(void)
{
	HeraldQueue  *queue = world.queue;
	HeraldPosition head = atomic_load(&queue->head);

	if (atomic_load(&queue->dispatched) != head || atomic_load(&queue->settled) != head)
		fail("something was dispatched behind our back");
	if (atomic_load(&world.wakeup->turns_out) != 0)
		fail("turns are out, with nobody awake");
	if (atomic_load(&queue->limit) != atomic_load(&queue->tail) + queue->ring_size)
		fail("limit and tail do not belong together");

	for (uint32_t database = 0; database < DATABASES; database++)
		verify_kept(database);
	world.limits.retain_max = 0;
	spill_trim();
	spill_delete_doomed();
	if (herald_retention_bytes(&world.retention) != 0 || spill_count_files() != 0 || large_count_files() != 0)
		fail("%d files and %d large ones are left, with nobody to read them",
			 spill_count_files(), large_count_files());
	if (herald_large_table_count(&world.large) != 0 || herald_large_table_bytes(&world.large) != 0)
		fail("%d large files with %llu bytes are in the table, and none exists",
			 herald_large_table_count(&world.large),
			 (unsigned long long) herald_large_table_bytes(&world.large));

	for (int i = 0; i < LISTENERS; i++)
	{
		Listener   *listener = &world.listeners[i];

		if (atomic_load(&herald_wakeup_turn(world.wakeup, listener->slot)->serial) != 0)
			fail("listener %d sleeps with a turn", i);
		for (int ended = 0; ended < listener->ended_count; ended++)
			verify_session(listener, &listener->ended[ended], "ended");
		listener->session.stop = head;
		verify_session(listener, &listener->session, "open");

		/* For the next round's check. */
		listener->ended_count = 0;
		memset(listener->read_before, 0, sizeof(listener->read_before));
		listener->session.count = listener->session.digest = 0;
		for (int channel = 0; channel < CHANNELS; channel++)
			if (listener->session.start[channel] != NOT_LISTENING)
				listener->session.start[channel] = head;
	}
	for (int i = 0; i < WRITERS; i++)
		world.writers[i].sent_count = 0;
}

/* Everything from herald_retention_kept_from() on can be read. */
static void
verify_kept(uint32_t database)
{
	static char buffer[1 << 20] __attribute__((aligned(8)));
	HeraldPosition from = herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX);
	HeraldReader reader;
	HeraldMessage message;
	HeraldReadResult result;

	/* One word behind the start of a batch whose file is gone: skip the rest of the batch. */
	if (from == atomic_load(&world.retention.complete_from[0]) && from > 0)
	{
		HeraldBatchHeader header;

		if (!herald_queue_copy(world.queue, from - HERALD_ALIGN, sizeof(header), (char *) &header) &&
			!spill_read(from - HERALD_ALIGN, sizeof(header), (char *) &header))
			return;				/* the segment is gone: the next one follows */
		from += header.length - HERALD_ALIGN;
	}
	herald_reader_begin(&reader, world.queue, database, from,
						atomic_load(&world.queue->dispatched), buffer, sizeof(buffer));
	herald_reader_use_spilled(&reader, spill_read);
	herald_reader_use_files(&reader, large_read, NULL);
	do
		result = herald_reader_next(&reader, &message);
	while (result == HERALD_READ_MESSAGE || result == HERALD_READ_REFILLED);
	spill_end_reading();
	if (result != HERALD_READ_END)
		fail("what is kept from %llu on ends at %llu: %d",
			 (unsigned long long) herald_retention_kept_from(&world.retention, world.queue, UINT64_MAX),
			 (unsigned long long) reader.position, (int) result);
}

static void
verify_session(const Listener *listener, const Session *session, const char *which)
{
	uint64_t	expected_count = 0;
	uint64_t	expected_digest = 0;

	for (int i = 0; i < WRITERS; i++)
		for (size_t n = 0; n < world.writers[i].sent_count; n++)
		{
			const Sent *sent = &world.writers[i].sent[n];

			if (sent->database != listener->database || sent->batch >= session->stop ||
				sent->batch < session->start[sent->channel])
				continue;
			expected_count++;
			expected_digest += sent->digest;
		}
	if (session->count != expected_count || session->digest != expected_digest)
		fail("listener %u got %llu messages in an %s session up to %llu, not %llu (digest %s)",
			 listener->index, (unsigned long long) session->count, which,
			 (unsigned long long) session->stop, (unsigned long long) expected_count,
			 session->digest == expected_digest ? "agrees" : "differs");
}

void
world_print(void)
{
	HeraldQueue  *queue = world.queue;

	fprintf(stderr, "tail %llu settled %llu dispatched %llu head %llu limit %llu\n",
			(unsigned long long) atomic_load(&queue->tail),
			(unsigned long long) atomic_load(&queue->settled),
			(unsigned long long) atomic_load(&queue->dispatched),
			(unsigned long long) atomic_load(&queue->head),
			(unsigned long long) atomic_load(&queue->limit));
	fprintf(stderr, "word at dispatched %llx, dispatching %u, leftovers %d\n",
			(unsigned long long) atomic_load(herald_queue_at(queue, atomic_load(&queue->dispatched))),
			atomic_load(&queue->dispatching), atomic_load(&world.leftovers));
	fprintf(stderr, "spilled %llu to %llu, lost %llu, in files at most %llu, the disk %s\n",
			(unsigned long long) atomic_load(&world.retention.from),
			(unsigned long long) atomic_load(&world.retention.to),
			(unsigned long long) atomic_load(&queue->lost),
			(unsigned long long) world.limits.bytes_max, world.disk_fills ? "fills" : "is empty");
	fprintf(stderr, "large files %d, %llu bytes, the oldest of %llu\n",
			herald_large_table_count(&world.large), (unsigned long long) herald_large_table_bytes(&world.large),
			(unsigned long long) herald_large_table_oldest(&world.large));
	fprintf(stderr, "rescues %d, lags %d\n", world.rescues, world.lags);
	fprintf(stderr, "turns out %u of %u, cursor %u\n", atomic_load(&world.wakeup->turns_out),
			atomic_load(&world.wakeup->turns_max), atomic_load(&world.wakeup->cursor));
	for (int i = 0; i < LISTENERS; i++)
	{
		Listener   *listener = &world.listeners[i];
		uint64_t	word = atomic_load(herald_wakeup_word(world.wakeup, listener->slot));

		fprintf(stderr, "listener %d: slot %u %s at %llu, turn %u, reasons %x%s%s\n",
				i, listener->slot, state_names[herald_word_state(word)],
				(unsigned long long) herald_word_position(word),
				atomic_load(&herald_wakeup_turn(world.wakeup, listener->slot)->serial),
				atomic_load(&listener->reasons), set_has(listener->slot) ? ", in the set" : "",
				atomic_load(&listener->parked) ? ", parked" : "");
	}
}
