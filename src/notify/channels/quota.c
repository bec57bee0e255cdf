/*-------------------------------------------------------------------------
 *
 * quota.c
 *	  Limits the channel memory that the sessions of one role use.
 *
 * All databases share the memory for channels, and every user may LISTEN.  Without a limit one
 * role could use all of this memory, and LISTEN would fail for all others.  So the bytes that a
 * role's sessions have taken are added up.
 *
 * There is no shared sum that could become wrong when a process exits at an unexpected place: each
 * listener has the bytes that count for it in its slot.  The channel map adds to them what an entry
 * takes, under the lock of its partition, before the entry exists (channel_map.c).
 *
 * How much a LISTEN takes is known only then: nothing, if the channel exists and has room for one
 * more listener.  So before that it claims the most that its entries can take, and then adds up,
 * both sequentially consistent.  Of two concurrent LISTENs at least one sees the other's claim; it
 * is possible that both are refused when there was room for one.  A claim ends only when what was
 * taken has been added, so a session's bytes are never too few.  A claim is for some channels at a
 * time, near the limit for one: a LISTEN is refused if one more entry could exceed it.
 *
 * When a listener leaves, another one counts for its entry, whose bytes grow first.  A sum that is
 * made meanwhile may have read the one before and the other after that: then it is too small, by the
 * channels that were left during the sum.
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

/* A claim takes at most this part of the limit: so those of all sessions that LISTEN at once take little of it. */
#define CLAIM_PART		1024

/* Of this session. */
static struct
{
	uint32		left;			/* entries that may follow */
	uint32		step;			/* for how many a claim is made at once */
	uint32		admitted;		/* of the present claim's entries, those that
								 * may follow */
	uint64		claimed;		/* bytes */
}			claim;

static void set_claim(uint64 bytes);
static uint64 bytes_of(uint32 role);
static uint64 limit(void);
herald_noreturn static void refuse(uint32 role, uint64 wanted);


void
herald_quota_begin(uint32 count)
{
	claim.left = count;
	claim.step = (uint32) Max(1, Min(limit() / CLAIM_PART / herald_channels_bytes_max(), count));
	claim.admitted = 0;
}

void
herald_quota_take_one(void)
{
	uint32		role = atomic_load_explicit(&herald_slots[herald_shared_my_slot()].role, memory_order_relaxed);

	Assert(claim.left > 0);
	while (claim.admitted == 0)
	{
		uint32		count = Min(claim.step, claim.left);
		uint64		wanted;

		set_claim(count * (uint64) herald_channels_bytes_max());
		wanted = bytes_of(role);
		if (wanted <= limit() || superuser_arg(role))
			claim.admitted = count;
		else if (count == 1)
			refuse(role, wanted);
		else
			claim.step = count / 2;
	}
	claim.admitted--;
	claim.left--;
}

void
herald_quota_end(void)
{
	if (claim.claimed > 0)
		set_claim(0);
}

/*
 * Instead of the claim before, whose entries exist.  [C2] announced before adding up: pairs with the
 * loads of other sessions' bytes in bytes_of()
 */
static void
set_claim(uint64 bytes)
{
	atomic_fetch_add_explicit(&herald_slots[herald_shared_my_slot()].channel_bytes, bytes - claim.claimed,
							  memory_order_seq_cst);
	claim.claimed = bytes;
}

/* Bytes that this role's sessions have taken, or are about to take. */
static uint64
bytes_of(uint32 role)
{
	uint32		used = atomic_load_explicit(&herald_wakeup->slots_used, memory_order_seq_cst);
	uint64		sum = 0;

	for (uint32 slot = 0; slot < used; slot++)
	{
		HeraldSlot *listener = &herald_slots[slot];

		/*
		 * [C2] Load the pid first: it is stored after the role, and before
		 * any bytes that matter.
		 */
		if (atomic_load_explicit(&listener->pid, memory_order_seq_cst) != 0 &&
			atomic_load_explicit(&listener->role, memory_order_relaxed) == role)
			sum += atomic_load_explicit(&listener->channel_bytes, memory_order_seq_cst);
	}
	return sum;
}

static uint64
limit(void)
{
	if (herald_max_channel_memory_per_role_kb >= 0)
		return (uint64) herald_max_channel_memory_per_role_kb * 1024;
	return herald_channels_room() / 2;
}

static void
refuse(uint32 role, uint64 wanted)
{
	const char *name = GetUserNameFromId(role, true);

	/*
	 * Now: the abort may have to wait for a client that does not read the
	 * error.
	 */
	herald_quota_end();
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many channels for role \"%s\"", name ? name : "?"),
			 errdetail("With this LISTEN, the role's sessions could use %llu kB of herald.channel_memory; herald.max_channel_memory_per_role allows %llu kB.",
					   (unsigned long long) (wanted + 1023) / 1024, (unsigned long long) limit() / 1024),
			 errhint("Listen to fewer channels, or increase herald.max_channel_memory_per_role for this role.")));
}
