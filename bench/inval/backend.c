/*-------------------------------------------------------------------------
 *
 * backend.c
 *	  A process that works like a backend of the published test.
 *
 * Its client requests a transaction with a byte on a socket.  A transaction uses
 * the CPU for a while, looks up entries of a cache, and keeps the cache valid: at
 * its begin and several times later it processes the messages that others have
 * inserted, as the server does whenever it locks a table.  Then it inserts its own
 * invalidations, and answers.  They concern tables of its own, which no other
 * backend has cached; but a reset empties the cache, and the next look-up of each
 * entry must compute it again.
 *
 * A signal is handled at the end of the transaction, or at once while the process
 * waits for its client.
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

#define ACCEPTS			10		/* checks for new messages in a transaction */
#define LOOKUPS			20		/* of cached entries between two such checks */
#define WORKING_SET		400		/* entries that are looked up, in turn */
#define CACHE_SIZE		1024	/* slots; an entry is in slot key % CACHE_SIZE */
#define REBUILD_STEPS	3000	/* to compute an entry: about the time of an index scan */

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

/* Handles signals until the client sends a request.  Returns false if the client has ended. */
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
		/* Numbered from 1 on, so that a reader notices missing messages. */
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

/* Removes the changed entry, and checks that no message of this writer was missed. */
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
