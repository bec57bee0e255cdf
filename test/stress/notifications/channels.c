/*-------------------------------------------------------------------------
 *
 * channels.c
 *	  The stress test's channel map, dispatch calls and signals.
 *
 * A plain table under locks stands for the map.  Within a run a listener is marked
 * once, even by several dispatchers: the run is published first, so it reads all of it.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "stress.h"

static bool mark_entry(const HeraldBatchHeader *header, const HeraldEntry *entry);
static void mark_channel(uint32_t channel, uint32_t database, HeraldPosition batch);
static void mark_database(uint32_t database, HeraldPosition batch);


void
map_set(uint32_t channel, uint32_t listener, bool on)
{
	pthread_rwlock_wrlock(&world.map_lock[channel]);
	world.map[channel][listener] = on;
	pthread_rwlock_unlock(&world.map_lock[channel]);
}

static void
stretch_begins(HeraldPosition end, void *arg)
{
	(void) arg;
	if (end == world.run)
		return;
	world.run = end;
	memset(world.marked, 0, sizeof(world.marked));
}

/* A large batch often takes several calls. */
static uint64_t
mark_batch(const HeraldBatchHeader *header, uint32_t *offset, uint64_t budget, void *arg)
{
	uint64_t	cost = 0;

	(void) arg;
	if (*offset == sizeof(*header))
		world.entries_marked = 0;
	while (*offset < header->length && (cost == 0 || cost < budget))
	{
		const HeraldEntry *entry = (const HeraldEntry *) ((const char *) header + *offset);

		if (!herald_entry_is_valid(entry, header->length - *offset) || !mark_entry(header, entry))
			fail("the dispatcher found no entry at %llu + %llu",
				 (unsigned long long) header->word, (unsigned long long) *offset);
		*offset += entry->length;
		cost += entry->length + HERALD_COST_OF_MARK;
		world.entries_marked++;
	}
	if (*offset == header->length && world.entries_marked != header->count)
		fail("batch %llu has %u entries, not %u",
			 (unsigned long long) header->word, world.entries_marked, header->count);
	return cost;
}

/* False: no sender writes such an entry. */
static bool
mark_entry(const HeraldBatchHeader *header, const HeraldEntry *entry)
{
	HeraldPosition position = herald_word_position(header->word);
	unsigned	channel;

	switch ((HeraldEntryKind) entry->kind)
	{
		case HERALD_ENTRY_FILE:
			return (const char *) entry + entry->length == (const char *) header + header->length;
		case HERALD_ENTRY_ALL_LISTENERS:
			mark_database(header->database, position);
			return true;
		case HERALD_ENTRY_COMMIT:
			return (const char *) entry == (const char *) (header + 1);
		case HERALD_ENTRY_NOTIFICATION:
		case HERALD_ENTRY_CHANNEL:
			if (sscanf(herald_entry_channel(entry), "ch%u", &channel) != 1 || channel >= CHANNELS)
				return false;
			mark_channel(channel, header->database, position);
			return true;
	}
	return false;
}

static void
mark_channel(uint32_t channel, uint32_t database, HeraldPosition batch)
{
	uint32_t	slots[LISTENERS];
	uint32_t	count = 0;

	pthread_rwlock_rdlock(&world.map_lock[channel]);
	for (uint32_t i = 0; i < LISTENERS; i++)
	{
		if (!world.map[channel][i] || world.listeners[i].database != database ||
			world.marked[i])
			continue;
		world.marked[i] = true;
		slots[count++] = world.listeners[i].slot;
	}
	(void) herald_wakeup_mark_all(world.wakeup, slots, count, batch);
	pthread_rwlock_unlock(&world.map_lock[channel]);
}

static void
mark_database(uint32_t database, HeraldPosition batch)
{
	for (uint32_t i = 0; i < LISTENERS; i++)
	{
		if (world.listeners[i].database != database || world.marked[i])
			continue;
		world.marked[i] = true;
		(void) herald_wakeup_mark(world.wakeup, world.listeners[i].slot, batch);
	}
}

static bool
send_signal(uint32_t slot, void *arg)
{
	static _Atomic uint32_t calls;

	(void) arg;
	for (uint32_t i = 0; i < LISTENERS; i++)
	{
		Listener   *listener = &world.listeners[i];

		if (listener->slot != slot)
			continue;
		if (herald_reasons_add(&listener->reasons, HERALD_REASON_NOTIFICATIONS,
							   HERALD_REASONS_NOTIFY))
		{
			count(COUNT_SIGNALS);
			sem_post(&listener->signal);
		}
		else
			count(COUNT_SAVED);

		/* Now and then the listener cannot act now. */
		return atomic_fetch_add(&calls, 1) % 8 != 0;
	}
	fail("a signal for slot %u, where nobody ever listened", slot);
	return true;
}

void
pump(uint32_t turns)
{
	herald_wakeup_pump(world.wakeup, turns, send_signal, NULL);
}

void
pump_after_pass(uint64_t *random)
{
	if (one_in(random, 2))
		herald_wakeup_pump_at_rest(world.wakeup, send_signal, NULL);
	else
		pump(HERALD_ALL_TURNS);
}

HeraldSequencerResult
dispatch_and_pump(uint64_t budget)
{
	HeraldSequencerCalls calls = {.stretch_begins = stretch_begins,.mark_batch = mark_batch};
	HeraldSequencerResult result = herald_sequencer_run(world.queue, budget, &calls);

	switch (result)
	{
		case HERALD_SEQUENCER_DONE:
			break;
		case HERALD_SEQUENCER_ELSEWHERE:
			count(COUNT_ELSEWHERE);
			break;
		case HERALD_SEQUENCER_MORE:
			count(COUNT_MORE);
			atomic_store(&world.leftovers, 1);
			break;
		case HERALD_SEQUENCER_DAMAGED:
			fail("the dispatcher found the queue damaged");
	}
	pump(1);
	return result;
}
