/*-------------------------------------------------------------------------
 *
 * stress.c
 *	  Seeded stress of notifications in core/: the threads, and their rounds.
 *
 * See stress.h for what they do.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>

#include "stress.h"

#define FIRST_BUFFER			64

World		world;
_Atomic uint64_t counts[COUNTS];

const char *const count_names[] = {
	"batches", "aborts", "received", "passes", "again", "requeues", "self passes",
	"sessions", "left reading", "dispatched elsewhere", "more to dispatch", "signals",
	"signals saved", "rescues", "recycles", "ring full", "paced", "lags", "spilled",
	"read from files", "disk full", "dropped", "overrun by limit", "overrun by error",
	"resets", "disconnects", "large", "read from large files", "resumed", "too late to resume",
	"segments passed over", NULL
};

_Static_assert(sizeof(count_names) == (COUNTS + 1) * sizeof(*count_names), "a name for each");

static void init_listener(Listener *listener, uint32_t index);


void
world_init(void)
{
	size_t		log_memory = herald_queue_bytes(HERALD_RING_MIN);
	size_t		wakeup_memory = HERALD_ALIGN_UP(herald_wakeup_memory(SLOTS)) + HERALD_CACHE_LINE;

	world.queue = aligned_alloc(HERALD_CACHE_LINE, log_memory);
	world.wakeup = aligned_alloc(HERALD_CACHE_LINE, wakeup_memory & ~(size_t) (HERALD_CACHE_LINE - 1));
	herald_queue_init(world.queue, HERALD_RING_MIN);
	herald_wakeup_init(world.wakeup, SLOTS, 2);
	spill_init();
	for (int i = 0; i < CHANNELS; i++)
		pthread_rwlock_init(&world.map_lock[i], NULL);
	for (uint32_t i = 0; i < WRITERS; i++)
		writer_init(&world.writers[i], i);
	for (uint32_t i = 0; i < LISTENERS; i++)
		init_listener(&world.listeners[i], i);

	for (int i = 0; i < SENDERS; i++)
		run_add_worker(sender_act, &world.writers[i], world.writers[i].random ^ UINT64_C(0x5555));
	for (int i = 0; i < LISTENERS; i++)
		run_add_thread(listener_act, &world.listeners[i],
					   world.listeners[i].random ^ UINT64_C(0xAAAA));
	run_add_thread(watchdog_act, NULL, run.seed * 77 + 1);
}

static void
init_listener(Listener *listener, uint32_t index)
{
	listener->index = index;
	listener->slot = 3 + index * (SLOTS / LISTENERS);
	listener->database = index % DATABASES;
	listener->random = run_random(1000 + index);
	listener->buffer_size = FIRST_BUFFER;
	listener->buffer = aligned_alloc(HERALD_ALIGN, FIRST_BUFFER);
	sem_init(&listener->signal, 0, 0);
}

void
world_plan_round(uint64_t *random)
{
	world.batches_per_sender = 1 + herald_random(random) % (one_in(random, 4) ? 150 : 12);
	world.rescues = one_in(random, 2);
	world.paced = one_in(random, 2);
	world.lags = one_in(random, 2);
	world.disk_fills = one_in(random, 4);
	world.alternates = one_in(random, 2);
	world.takes_unlocked = one_in(random, 2);
	world.limits.bytes_max = one_in(random, 2) ? UINT64_MAX :
		herald_random(random) % HERALD_SEGMENTS * world.queue->segment_size;
	world.limits.retain_max = one_in(random, 2) ? 0 :
		herald_random(random) % HERALD_SEGMENTS * world.queue->segment_size;
	atomic_store(&world.wakeup->turns_max, 1 + herald_random(random) % 3);
	atomic_store(&world.wakeup->turns_at_rest,
				 atomic_load(&world.wakeup->turns_max) + herald_random(random) % 3);
}

void
world_wake_all(void)
{
	for (int i = 0; i < LISTENERS; i++)
		sem_post(&world.listeners[i].signal);
}

void
world_report(double seconds)
{
	(void) seconds;
	printf("laps %llu\n", (unsigned long long) (atomic_load(&world.queue->head) /
												world.queue->ring_size - 1));
}
