/*-------------------------------------------------------------------------
 *
 * reason_names.c
 *	  Reasons to signal that other modules have registered.
 *
 * A reason is a bit of the mask that has the same name in all processes.  The names are in
 * shared memory, and are never removed.  A reason registered in the postmaster gets its bit
 * when shared memory is initialized, before any backend can register one; each backend handles
 * it from the end of its first transaction on.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

#include "api/reason_names.h"
#include "base/involvement.h"
#include "base/attention.h"
#include "base/shared.h"
#include "base/signal.h"
#include "core/reasons.h"

/* The name of bit HERALD_REASON_FIRST_OTHER + i; empty from the first free one on. */
struct HeraldReasonNames
{
	char		names[HERALD_REASONS_OTHER][NAMEDATALEN];
};

/* Initial contents of the shared memory, for registrations while modules are preloaded. */
static HeraldReasonNames preloaded;

struct HeraldReason
{
	uint32		bit;
	bool		is_attended;
	HeraldReasonHandler handler;
	void	   *arg;
	HeraldReason *next;
};

/* The reasons of this process. */
static HeraldReason *registered;
static bool has_unattended;

static int	enter(HeraldReasonNames *in, const char *name);


Size
herald_reason_names_shared_size(void)
{
	return sizeof(HeraldReasonNames);
}

void
herald_reason_names_shared_init(void)
{
	*herald_reason_names = preloaded;
}

HeraldReason *
herald_reason_register(const char *name, HeraldReasonHandler handler, void *arg)
{
	HeraldReason *reason;
	int			place;
	uint32		bit;

	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("name of a reason must have 1 to %d bytes", NAMEDATALEN - 1)));

	reason = MemoryContextAllocZero(TopMemoryContext, sizeof(HeraldReason));
	if (process_shared_preload_libraries_in_progress)
		place = enter(&preloaded, name);
	else
	{
		LWLockAcquire(herald_control->reasons_lock, LW_EXCLUSIVE);
		place = enter(herald_reason_names, name);
		LWLockRelease(herald_control->reasons_lock);
	}
	if (place == HERALD_REASONS_OTHER)
	{
		pfree(reason);
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many reasons to signal are registered"),
				 errdetail("A server can have %d of them until it restarts.", HERALD_REASONS_OTHER)));
	}

	bit = UINT32_C(1) << (HERALD_REASON_FIRST_OTHER + place);
	for (HeraldReason *known = registered; known; known = known->next)
		if (known->bit == bit)
		{
			pfree(reason);
			reason = known;
			break;
		}
	if (reason->bit == 0)
	{
		reason->bit = bit;
		reason->next = registered;
		registered = reason;
	}
	if (handler == NULL)
		return reason;

	reason->handler = handler;
	reason->arg = arg;
	reason->is_attended = false;
	herald_is_involved = has_unattended = true;

	/* The postmaster, and processes without transactions, are not signalled. */
	if (OidIsValid(MyDatabaseId))
		herald_reason_names_attend();
	return reason;
}

bool
herald_reason_send(HeraldReason *reason, int pid)
{
	if (pid == 0)
		return false;
	for (uint32 slot = 0; slot < herald_control->slots; slot++)
		if (atomic_load_explicit(&herald_slots[slot].attends, memory_order_relaxed) == pid)
			return (atomic_load_explicit(&herald_slots[slot].attends_to, memory_order_relaxed) &
					reason->bit) != 0 &&
				herald_signal_reason(slot, reason->bit);
	return false;
}

void
herald_reason_names_attend(void)
{
	if (!has_unattended)
		return;
	for (HeraldReason *reason = registered; reason; reason = reason->next)
		if (reason->handler != NULL && !reason->is_attended)
		{
			herald_attention_to(reason->bit, reason->handler, reason->arg);
			reason->is_attended = true;
		}
	has_unattended = false;
}

/*
 * The place of this name, which is entered if it is new; HERALD_REASONS_OTHER: all places are
 * taken.
 */
static int
enter(HeraldReasonNames *in, const char *name)
{
	int			i = 0;

	while (i < HERALD_REASONS_OTHER && in->names[i][0] != '\0' && strcmp(in->names[i], name) != 0)
		i++;
	if (i < HERALD_REASONS_OTHER)
		strlcpy(in->names[i], name, NAMEDATALEN);
	return i;
}
