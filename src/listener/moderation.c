/*-------------------------------------------------------------------------
 *
 * moderation.c
 *	  Fewer, fuller wakeups while notifications keep coming.
 *
 * To wake an idle backend costs the same for one message as for a thousand:
 * two signals, two process switches, an empty transaction, a system call to
 * send.  Network cards have the same trouble with interrupts and packets, and
 * we do as they and their drivers do (interrupt moderation, and polling under
 * load): whoever is woken so often that it hardly gets to sleep stays awake a
 * moment longer, and nobody has to wake it.
 *
 * - A listener with messages of several senders, and hardly any pause between
 *	 its wakeups, lingers: it sleeps some microseconds with its word at
 *	 PROCESSING, which costs a sender no signal, and then looks for more.  With
 *	 one sender there is nothing to gain: it waits for its commit each time.
 *
 * - A listener that others wait for, while messages come in as fast as it reads,
 *	 passes its turn on a little later, so that the next one finds more to read.
 *	 How much later depends on how many wait: all of them together are put off
 *	 by CIRCLE_US at most.
 *
 * A single notification, or a few, are never held back: both begin only when
 * more came in during a pass, or directly after one.  At rest the opposite is
 * right, and more listeners are woken at a time than under load: each of them
 * has the one batch to read, and a CPU that waits for the next link of a chain
 * is a CPU lost.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <poll.h>

#include "libpq/libpq.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"

#include "compat/compat.h"
#include "listener/moderation.h"
#include "shared.h"
#include "waits.h"

/*
 * One step of waiting; any signal ends it early.  The kernel adds some 50 us to
 * a sleep by default, so shorter ones would be no shorter.
 */
#define STEP_US			50

/*
 * Two deliveries that are no further apart are as good as one: that is about
 * what a wakeup costs, so that the listener hardly got to sleep.
 */
#define APART_US		40

/*
 * Lingering begins with one step, and each time that it was worth it takes a
 * step longer, up to this.  After so many times the server has a look at its
 * own affairs.
 */
#define LINGER_US		200
#define LINGERS_MAX		32

/* A full circle of turns is put off by so much at most, and one turn by so much. */
#define CIRCLE_US		10000
#define TURN_US			500

static struct
{
	bool		is_off;			/* in this delivery */
	bool		is_hot;			/* it follows the one before immediately */
	bool		several;		/* it has messages of several senders */
	int			lingers;
	HeraldPosition began_at;	/* what was dispatched by then */
	int32		last_sender;
	instr_time	ended_at;		/* the delivery before; zero: long ago */
}			moderation;

static bool wait_a_moment(long us);
static uint64 us_since(instr_time start);


void
herald_moderation_begin(bool client_waits)
{
	moderation.is_off = client_waits || pq_is_send_pending() || whereToSendOutput != DestRemote;
	moderation.is_hot = !INSTR_TIME_IS_ZERO(moderation.ended_at) &&
		us_since(moderation.ended_at) < APART_US;
	moderation.several = false;
	moderation.lingers = 0;
	moderation.began_at = atomic_load_explicit(&herald_log->dispatched, memory_order_relaxed);
}

void
herald_moderation_sent(int32 sender_pid)
{
	if (sender_pid == moderation.last_sender)
		return;
	moderation.several = moderation.last_sender != 0;
	moderation.last_sender = sender_pid;
}

bool
herald_moderation_linger(HeraldPosition position)
{
	if (moderation.is_off || !moderation.is_hot || !moderation.several ||
		moderation.lingers == LINGERS_MAX || InterruptPending ||
		herald_wakeup_waiting(herald_wakeup) > 0)
		return false;

	/* Meanwhile the log is not held back on our account. */
	herald_wakeup_advance(herald_wakeup, herald_shared_my_slot(), position);
	if (!wait_a_moment(Min((long) STEP_US * (1 + moderation.lingers), LINGER_US)))
		return false;
	moderation.lingers++;
	return true;
}

bool
herald_moderation_end(bool at_rest)
{
	HeraldPosition seen = moderation.began_at;
	instr_time	start;
	uint32		turns = atomic_load_explicit(&herald_wakeup->turns_max, memory_order_relaxed);

	/* The clock is left alone then: hundreds are waiting for us to be done. */
	if (at_rest && herald_wakeup_waiting(herald_wakeup) > 0)
	{
		INSTR_TIME_SET_ZERO(moderation.ended_at);
		return true;
	}

	INSTR_TIME_SET_CURRENT(start);
	while (!moderation.is_off && !InterruptPending)
	{
		HeraldPosition now = atomic_load_explicit(&herald_log->dispatched, memory_order_relaxed);
		uint32		waiting;

		/* Nothing new: nobody has anything to gain. */
		if (now == seen || (waiting = herald_wakeup_waiting(herald_wakeup)) == 0 ||
			us_since(start) >= Min(TURN_US, (uint64) CIRCLE_US * turns / waiting))
			break;
		seen = now;

		if (!wait_a_moment(STEP_US))
			break;
	}
	INSTR_TIME_SET_CURRENT(moderation.ended_at);
	return false;
}

/*
 * What there is goes to the client first.  False: the client has something for us, or
 * does not take what we have.
 */
static bool
wait_a_moment(long us)
{
	struct pollfd client = {.fd = MyProcPort->sock, .events = POLLIN};
	struct timespec timeout = {.tv_nsec = us * 1000};
	int			result;

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
