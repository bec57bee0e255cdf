/*-------------------------------------------------------------------------
 *
 * backend.c
 *	  A process that does what a backend of the published test did.
 *
 * Its client asks for a transaction, a byte on a socket.  A transaction uses
 * the CPU for a while, looks up entries of a cache on the way, and keeps that
 * valid: it takes in what others have inserted at its begin and several times
 * more, as the server does whenever it locks a table.  Then it inserts its own
 * invalidations, and answers.  They concern tables of its own, which nobody else
 * has cached; but a reset forgets everything, and what is looked up then has to
 * be computed anew.
 *
 * A signal is taken up at the end of the transaction, or at once while the
 * process waits for its client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS			10		/* a transaction looks so often whether there is something */
#define LOOKUPS			20		/* of cached entries between two such looks */
#define WORKING_SET		400		/* entries that are looked up, in turn */
#define CACHE_SIZE		1024	/* slots; an entry's key is its slot and some more */
#define REBUILD_STEPS	3000	/* to compute an entry: about what an index scan takes */

typedef struct Cache
{
	uint32_t	keys[CACHE_SIZE];	/* 0: empty */
} Cache;

static volatile sig_atomic_t signalled;

static void transaction(Backend *self, const Load *load);
static void look_up(Backend *self, uint32_t key);
static bool wait_for_client(Backend *self, int socket);


static void
on_signal(int number)
{
	(void) number;
	signalled = true;
}

void
backend_main(Backend *self, const Load *load, int socket)
{
	struct sigaction action = {.sa_handler = on_signal};
	Cache		cache = {0};
	char		byte = 0;

	sigaction(SIGUSR1, &action, NULL);
	self->cache = &cache;
	self->policy->join(self);
	if (write(socket, &byte, 1) != 1)
		exit(1);
	while (wait_for_client(self, socket))
	{
		transaction(self, load);
		if (write(socket, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

/* Returns false if it has gone. */
static bool
wait_for_client(Backend *self, int socket)
{
	struct pollfd poll_for = {.fd = socket,.events = POLLIN};
	sigset_t	block;
	sigset_t	before;
	char		byte;
	int			ready = 0;

	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	while (ready <= 0)
	{
		if (signalled)
		{
			signalled = false;
			count(&self->counters->catch_ups, 1);
			self->policy->catch_up(self);
		}
		sigprocmask(SIG_BLOCK, &block, &before);
		if (!signalled)
			ready = ppoll(&poll_for, 1, NULL, &before);
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
	return read(socket, &byte, 1) == 1;
}

/* Uses the CPU; a step is about a nanosecond. */
uint64_t
backend_work(uint64_t steps)
{
	uint64_t	x = steps + 1;

	for (uint64_t i = 0; i < steps; i++)
	{
		x ^= x << 13;
		x ^= x >> 7;
		__asm__ volatile ("" : "+r" (x));
	}
	return x;
}

static void
transaction(Backend *self, const Load *load)
{
	HeraldInvalidation messages[MESSAGES_MAX];
	uint64_t	number = atomic_load_explicit(&self->counters->transactions, memory_order_relaxed);
	uint32_t	looked_up = (uint32_t) (number * ACCEPTS * LOOKUPS);

	for (int i = 0; i < ACCEPTS; i++)
	{
		self->policy->accept(self);
		for (int j = 0; j < LOOKUPS; j++)
			look_up(self, 1 + looked_up++ % WORKING_SET);
		(void) backend_work(load->work_steps / ACCEPTS);
	}
	for (uint32_t i = 0; i < load->messages; i++)
	{
		/* Numbered from 1 on, so that a reader sees whether it has all. */
		uint32_t	xid = (uint32_t) (number * load->messages) + i + 1;
		uint32_t	key = xid * UINT32_C(2654435761) | CACHE_SIZE;	/* above the working set */

		messages[i] = (HeraldInvalidation) {.database = 1,.cache = self->slot,.key = key,.xid = xid};
	}
	self->policy->insert(self, messages, load->messages);
	count(&self->counters->transactions, 1);
}

static void
look_up(Backend *self, uint32_t key)
{
	uint32_t   *found = &self->cache->keys[key % CACHE_SIZE];

	if (*found != key)
	{
		(void) backend_work(REBUILD_STEPS);
		*found = key;
		count(&self->counters->rebuilt, 1);
	}
}

/* Forgets what has changed, and checks that nothing of its writer is left out. */
void
backend_apply(Backend *self, const HeraldInvalidation *message)
{
	uint32_t   *found = &self->cache->keys[message->key % CACHE_SIZE];
	uint32_t   *last = &self->last[message->cache];

	if (*found == message->key)
		*found = 0;
	if (*last != 0 && message->xid != *last + 1)
		count(&self->counters->missed, 1);
	*last = message->xid;
	count(&self->counters->messages, 1);
}

void
backend_reset(Backend *self)
{
	memset(self->cache, 0, sizeof(*self->cache));
	memset(self->last, 0, sizeof(self->last));
	count(&self->counters->resets, 1);
}

void
backend_signal(Backend *self, uint32_t slot)
{
	(void) kill(self->shared->pids[slot], SIGUSR1);
	count(&self->counters->signals, 1);
}
