/*-------------------------------------------------------------------------
 *
 * moderation_rules.c
 *	  Decides whether to wait a moment for more notifications, and for how long; and when
 *	  there are none to wait for.
 *
 * Waking an idle backend costs the same for one message as for a thousand: two signals, two
 * process switches, an empty transaction, a system call to send.  Network cards have the same
 * problem with interrupts and packets, and solve it by interrupt moderation.  Here, a listener
 * that would be woken again at once stays awake a moment longer, so no process has to wake it.
 *
 * - A listener that finds messages of several senders each time it looks lingers: it sleeps
 *	 some microseconds, during which a message costs its sender no signal, and then looks for
 *	 more.  The decision depends on the number of messages that have gathered, not on the
 *	 length of the sleep: if CPUs are busy, the sleep is mostly a wait for a CPU; if they are
 *	 not, avoiding a wakeup is not worth a delay.
 *
 * - If other listeners wait for the turn, and messages arrive as fast as this listener reads,
 *	 it passes the turn on a little later, so that the next listener finds more to read.  If it
 *	 reads faster than messages arrive, it does so only if more are expected meanwhile:
 *	 otherwise faster listeners would carry fewer messages per wakeup.  The delay depends on
 *	 the number of waiting listeners: together they are delayed by about CIRCLE_US, or by one
 *	 step each if that is more.
 *
 * A single notification is never held back: both begin only if more arrive during a pass, or
 * at most CIRCLE_US after one.
 *
 * - At rest, when the queue has ended with the one batch that this listener has read, and its
 *	 previous pass is longer ago than that, no wakeup gets any fuller by being later.  Then
 *	 more listeners may be awake at a time: see herald_wakeup_pump_at_rest().
 *
 * This file only computes the decisions.  The code that sleeps and reads clocks is
 * notify/listener/moderation.c.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "moderation_rules.h"

/* The kernel adds some 50 us to a sleep by default, so that a step takes twice as long. */
#define STEP_TAKES_US	(UINT64_C(2) * HERALD_STEP_US)

/* A wakeup that carried this number of batches carried enough. */
#define BATCHES_PLENTY	64

/*
 * Lingering begins if a wakeup found BATCHES_BEGIN batches, and continues if each further look
 * finds BATCHES_GO_ON more.  Random arrivals seldom reach BATCHES_BEGIN if a wakeup takes no
 * longer than the average time between two of them.
 */
#define BATCHES_BEGIN	3
#define BATCHES_GO_ON	2

/* The first time lingering lasts one step, and each time one step longer, up to this. */
#define LINGER_US		200

/* Maximum number of steps in one pass: then the listener returns to the server's main loop. */
#define LINGERS_MAX		32

/*
 * After lingering without success a listener skips the next opportunities, each time about
 * twice as many, up to this: messages that arrive in bursts, as those of commits that are
 * flushed together, have no steady rate.
 */
#define LEAVE_OUT_MAX	63

/*
 * Maximum delay of a full circle of turns.  After this time since the previous pass, the number
 * of arrivals does not predict the next ones.
 */
#define CIRCLE_US		10000

/* Maximum delay of one turn. */
#define TURN_US			500


bool
herald_moderation_expects(const HeraldPass *pass)
{
	return pass->since_us < CIRCLE_US && pass->batches < BATCHES_PLENTY &&
		pass->batches * STEP_TAKES_US >= pass->since_us;
}

uint32_t
herald_moderation_linger(const HeraldPass *pass, uint32_t waiting, HeraldRestraint *restraint)
{
	uint32_t	gathered = pass->batches - pass->batches_before;
	uint32_t	us = HERALD_STEP_US * (1 + pass->lingers);

	if (!pass->several || waiting > 0 || pass->lingers >= LINGERS_MAX ||
		gathered < (pass->lingers == 0 ? BATCHES_BEGIN : BATCHES_GO_ON) ||
		pass->since_us >= CIRCLE_US ||
		pass->batches * STEP_TAKES_US < pass->since_us)
		return 0;
	if (restraint->left_out < restraint->to_leave_out)
	{
		restraint->left_out++;
		return 0;
	}
	return us < LINGER_US ? us : LINGER_US;
}

void
herald_moderation_learn(HeraldRestraint *restraint, bool came)
{
	uint32_t	more = 2 * restraint->to_leave_out + 1;

	restraint->left_out = 0;
	restraint->to_leave_out = came ? 0 : more < LEAVE_OUT_MAX ? more : LEAVE_OUT_MAX;
}

bool
herald_moderation_pauses(bool has_grown, bool expects, uint32_t waiting, uint32_t k,
						 uint64_t waited_us)
{
	uint64_t	share_us;

	/* Nothing new arrived and nothing is expected: waiting gains nothing. */
	if (waiting == 0 || !(has_grown || expects))
		return false;
	share_us = (uint64_t) CIRCLE_US * k / waiting;
	return waited_us < (share_us < TURN_US ? share_us : TURN_US);
}

bool
herald_moderation_is_at_rest(const HeraldPass *pass)
{
	return pass->since_us >= CIRCLE_US;
}
