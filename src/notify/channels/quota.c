/*-------------------------------------------------------------------------
 *
 * quota.c
 *	  Limits the number of channels that the sessions of one role listen to.
 *
 * All databases share the memory for channels, and every user may LISTEN.  Without a limit one
 * role could use all of this memory, and LISTEN would fail for all others.  So the channels of
 * a role's sessions are added up, each channel once for each session.
 *
 * There is no shared count that could become wrong when a process exits at an unexpected
 * place: each listener has its own count in its slot.  A LISTEN first announces its new count
 * and then adds up, both sequentially consistent.  Of two concurrent LISTENs at least one sees
 * the other's count; it is possible that both are refused when there was room for one.
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
#include "notify/channels/channel_map.h"
#include "notify/channels/quota.h"

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

	/*
	 * [C2] announced before adding up: pairs with the loads of other sessions' counts in
	 * channels_of()
	 */
	atomic_store_explicit(&mine->channels, before + more, memory_order_seq_cst);
	wanted = channels_of(role);
	if (wanted <= limit() || superuser_arg(role))
		return;

	/* Reset it now: the abort may have to wait for a client that does not read the error. */
	atomic_store_explicit(&mine->channels, before, memory_order_seq_cst);
	refuse(role, wanted);
}

/* Number of channels that this role's sessions listen to, or are about to. */
static uint64
channels_of(uint32 role)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_seq_cst);
	uint64		sum = 0;

	for (uint32 slot = 0; slot < used; slot++)
	{
		HeraldSlot *listener = &herald_slots[slot];

		/*
		 * [C2] Load the pid first: it is stored after the role, and before any count that
		 * matters.
		 */
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
