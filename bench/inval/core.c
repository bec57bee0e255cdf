/*-------------------------------------------------------------------------
 *
 * core.c
 *	  The policy of core/inval_queue.c, in its present and in its published form.
 *
 * herald		readers take no lock, and first check whether there is anything to read
 * published	readers take the lock, shared, for each read of up to
 *				HERALD_INVAL_READ_QUANTUM messages, also if there are none
 *
 * Everything else is the same: resets, signals, clean-up.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "inval.h"

static void
join(Backend *self)
{
	lock_exclusive(self);
	herald_inval_join(self->queue, self->slot);
	lock_release(self);
}

static void
signal_next(Backend *self, int32_t next)
{
	if (next != HERALD_INVAL_NOBODY)
		backend_signal(self, (uint32_t) next);
}

/* Processes the messages of one read.  Returns false if there were none. */
static bool
take_in(Backend *self, const HeraldInvalidation *messages, int found)
{
	if (found < 0)
	{
		backend_reset(self);
		join(self);
		return true;
	}
	for (int i = 0; i < found; i++)
		backend_apply(self, &messages[i]);
	if (found > 0)
		count(&self->counters->reads, 1);
	return found > 0;
}

static void
accept_unlocked(Backend *self)
{
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];

	if (herald_inval_is_current(self->queue, self->slot))
		return;
	while (take_in(self, messages, herald_inval_read(self->queue, self->slot, messages)))
		;
	signal_next(self, herald_inval_caught_up(self->queue, self->slot));
}

static void
accept_locked(Backend *self)
{
	HeraldInvalidation messages[HERALD_INVAL_READ_QUANTUM];
	bool		any = false;
	int			found;

	do
	{
		lock_shared(self);
		found = herald_inval_read(self->queue, self->slot, messages);
		lock_release(self);
		any = any || found != 0;
	} while (take_in(self, messages, found));
	if (any)
		signal_next(self, herald_inval_caught_up(self->queue, self->slot));
}

/* The signal may arrive when all is read already; the turn must be passed on in this case, too. */
static void
catch_up(Backend *self)
{
	self->policy->accept(self);
	signal_next(self, herald_inval_caught_up(self->queue, self->slot));
}

static void
insert(Backend *self, const HeraldInvalidation *messages, uint32_t count)
{
	while (count > 0)
	{
		uint32_t	some = count < HERALD_INVAL_WRITE_QUANTUM ? count : HERALD_INVAL_WRITE_QUANTUM;
		int32_t		next;

		lock_exclusive(self);
		next = herald_inval_insert(self->queue, messages, some);
		lock_release(self);
		signal_next(self, next);
		messages += some;
		count -= some;
	}
}

const Policy policy_published = {
	"published", herald_inval_memory, herald_inval_init, join, accept_locked, catch_up, insert
};
const Policy policy_herald = {
	"herald", herald_inval_memory, herald_inval_init, join, accept_unlocked, catch_up, insert
};
