/*-------------------------------------------------------------------------
 *
 * quota.c
 *	  How many channels the sessions of one role may listen to.
 *
 * The memory for channels is one for all databases, and LISTEN is everybody's
 * right.  Without a limit one role could take all of it, and LISTEN would fail
 * for all others.  So what the sessions of a role listen to is added up, each
 * channel once for each session.
 *
 * There is no shared count that could go wrong when a process ends at an
 * unexpected place: each listener has its own in its slot.  A LISTEN announces
 * its new count first, and adds up afterwards, both sequentially consistent.
 * Of two that come at the same time one at least sees the other's; that both
 * are refused, when there was room for one, is possible.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/compat.h"
#include "base/settings.h"
#include "base/shared.h"
#include "notify/dispatch/channel_map.h"
#include "notify/listener/quota.h"

static uint64 channels_of(uint32 role);
static uint64 limit(void);
herald_noreturn static void refuse(uint32 role, uint64 wanted);


void
herald_quota_claim(uint32 more)
{
	HeraldSlot *mine = &herald_slots[herald_shared_my_slot()];
	uint32		before = atomic_load_explicit(&mine->channels, memory_order_relaxed);
	uint32		role = atomic_load_explicit(&mine->role, memory_order_relaxed);
	uint64		wanted;

	/* [C2] announced before adding up: pairs with the loads in channels_of(), of others' */
	atomic_store_explicit(&mine->channels, before + more, memory_order_seq_cst);
	wanted = channels_of(role);
	if (wanted <= limit() || superuser_arg(role))
		return;

	/* At once: the abort waits for a client that does not read the error. */
	atomic_store_explicit(&mine->channels, before, memory_order_seq_cst);
	refuse(role, wanted);
}

/* What this role's sessions listen to, or are about to. */
static uint64
channels_of(uint32 role)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_seq_cst);
	uint64		sum = 0;

	for (uint32 slot = 0; slot < used; slot++)
	{
		HeraldSlot *listener = &herald_slots[slot];

		/* [C2] The pid first: it is stored after the role, and before a count that matters. */
		if (atomic_load_explicit(&listener->pid, memory_order_seq_cst) != 0 &&
			atomic_load_explicit(&listener->role, memory_order_relaxed) == role)
			sum += atomic_load_explicit(&listener->channels, memory_order_seq_cst);
	}
	return sum;
}

static uint64
limit(void)
{
	if (herald_max_channels_per_role >= 0)
		return (uint64) herald_max_channels_per_role;
	return herald_channels_max() / 2;
}

static void
refuse(uint32 role, uint64 wanted)
{
	const char *name = GetUserNameFromId(role, true);

	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many channels for role \"%s\"", name ? name : "?"),
			 errdetail("With this LISTEN, the role's sessions would listen to %llu channels; herald.max_channels_per_role allows %llu. A channel counts once for each session.",
					   (unsigned long long) wanted, (unsigned long long) limit()),
			 errhint("Listen to fewer channels, or increase herald.max_channels_per_role for this role.")));
}
