/*-------------------------------------------------------------------------
 *
 * moderation.c
 *	  Fewer, fuller wakeups while notifications keep coming.
 *
 * The rules and their reasons are in core/moderation_rules.c; this file handles the clock, the
 * sleep and the client.  A listener that lingers sleeps with its word at PROCESSING, so that
 * senders send no signal.  Before that, it sends all of its output to the client.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <poll.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"

#include "base/client.h"
#include "base/compat.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/moderation_rules.h"
#include "notify/listener/moderation.h"

static struct
{
	bool		is_off;			/* in this delivery */
	HeraldPass	pass;			/* this delivery; since_us is set when it is
								 * needed */
	HeraldPosition last_batch;
	HeraldPosition began_at;	/* the dispatched position at the beginning */
	int32		last_sender;
	instr_time	ended_at;		/* end of the previous delivery; zero: none */
}			moderation;

static HeraldRestraint from_lingering;

static const HeraldPass *pass_now(void);
static bool has_more(void);
static bool wait_a_moment(long us);
static uint64 us_since(instr_time start);


void
herald_moderation_begin(bool client_waits)
{
	moderation.is_off = client_waits || pq_is_send_pending() || whereToSendOutput != DestRemote;
	memset(&moderation.pass, 0, sizeof(moderation.pass));
	moderation.began_at = atomic_load_explicit(&herald_queue->dispatched, memory_order_relaxed);
}

void
herald_moderation_sent(int32 sender_pid, HeraldPosition batch)
{
	if (batch != moderation.last_batch)
		moderation.pass.batches++;
	moderation.last_batch = batch;
	if (sender_pid == moderation.last_sender)
		return;
	moderation.pass.several = moderation.last_sender != 0;
	moderation.last_sender = sender_pid;
}

bool
herald_moderation_stay(HeraldPosition position)
{
	bool		had_more = has_more();
	uint32		us;

	if (moderation.is_off || InterruptPending)
		return false;
	us = herald_moderation_linger(pass_now(), herald_wakeup_waiting(herald_wakeup), &from_lingering);
	moderation.pass.batches_before = moderation.pass.batches;
	if (us == 0)
		return false;

	/* Do not hold the queue back meanwhile. */
	herald_wakeup_advance(herald_wakeup, herald_shared_my_slot(), position);
	if (!wait_a_moment(us))
		return false;
	moderation.pass.lingers++;

	/*
	 * If messages had arrived before, this does not show whether lingering
	 * helps.
	 */
	if (had_more)
		return true;
	had_more = has_more();
	herald_moderation_learn(&from_lingering, had_more);
	return had_more;
}

bool
herald_moderation_end(bool at_end, bool is_alone)
{
	HeraldPosition seen = moderation.began_at;
	uint32		k = atomic_load_explicit(&herald_wakeup->turns_max, memory_order_relaxed);
	const HeraldPass *pass = pass_now();
	bool		expects = at_end && herald_moderation_expects(pass);
	bool		at_rest = is_alone && herald_moderation_is_at_rest(pass);
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	while (!moderation.is_off && !InterruptPending &&
		   herald_wakeup_has_turn(herald_wakeup, herald_shared_my_slot()))
	{
		HeraldPosition now = atomic_load_explicit(&herald_queue->dispatched, memory_order_relaxed);

		if (!herald_moderation_pauses(now != seen, expects, herald_wakeup_waiting(herald_wakeup),
									  k, us_since(start)))
			break;
		seen = now;
		expects = false;
		if (!wait_a_moment(HERALD_STEP_US))
			break;
	}
	INSTR_TIME_SET_CURRENT(moderation.ended_at);
	return at_rest;
}

static const HeraldPass *
pass_now(void)
{
	moderation.pass.since_us = INSTR_TIME_IS_ZERO(moderation.ended_at) ? PG_UINT64_MAX :
		us_since(moderation.ended_at);
	return &moderation.pass;
}

/* A hint, so relaxed: herald_wakeup_finish() decides whether there is more. */
static bool
has_more(void)
{
	_Atomic uint64_t *word = herald_wakeup_word(herald_wakeup, herald_shared_my_slot());

	return herald_word_state(atomic_load_explicit(word, memory_order_relaxed)) ==
		HERALD_LISTENER_AGAIN;
}

/*
 * Send the output to the client first.  False: the client has sent something, or does not
 * accept all of the output.
 */
static bool
wait_a_moment(long us)
{
	struct pollfd client = {.fd = MyProcPort->sock,.events = POLLIN};
	struct timespec timeout = {.tv_nsec = us * 1000};
	int			result;

	HERALD_MAY_WAIT();
	if (pq_flush_if_writable() != 0 || pq_is_send_pending())
		return false;
	pgstat_report_wait_start(herald_wait(HERALD_WAIT_MODERATION));
	result = ppoll(&client, 1, &timeout, NULL);
	pgstat_report_wait_end();
	return result <= 0;
}

static uint64
us_since(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MICROSEC(now);
}
