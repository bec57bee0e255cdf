/*-------------------------------------------------------------------------
 *
 * moderation_rules.c
 *	  Is it worth waiting a moment for more notifications, and for how long?
 *
 * To wake an idle backend costs the same for one message as for a thousand:
 * two signals, two process switches, an empty transaction, a system call to
 * send.  Network cards have the same trouble with interrupts and packets, and
 * interrupt moderation is their answer: a listener that would be woken again at
 * once stays awake a moment longer, and nobody has to wake it.
 *
 * - A listener that finds messages of several senders each time it looks, lingers:
 *	 it sleeps some microseconds, during which a message costs its sender no signal,
 *	 and then looks for more.  What counts is how many have gathered, and not how
 *	 short its sleep was: where the CPUs are short, most of that is waiting for one,
 *	 and where they are not, a message is not worth a delay.
 *
 * - A listener that others wait for, while messages come in as fast as it reads,
 *	 passes its turn on a little later, so that the next one finds more to read.
 *	 One that reads faster than they come, since a wakeup carries few, does so if
 *	 more is to be expected meanwhile: else the faster it is, the less each wakeup
 *	 carries.  How much later depends on how many wait: all of them together are
 *	 put off by about CIRCLE_US, or by a step for each if that is more.
 *
 * A single notification is never held back: both begin only when more came in
 * during a pass, or at most RECENT_US after one.
 *
 * These are the rules alone, of figures alone.  The code that sleeps, and looks at clocks,
 * is notify/listener/moderation.c.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "moderation_rules.h"

/* The kernel adds some 50 us to a sleep by default, so that a step takes twice as long. */
#define STEP_TAKES_US	(UINT64_C(2) * HERALD_STEP_US)

/* A wakeup that carried so many batches carried enough. */
#define BATCHES_PLENTY	64

/*
 * To linger is worth it when so many were there when it was woken, and so many
 * more each time that it looks again.  Random arrivals that are no more frequent
 * than wakeups are quick seldom come to the first.
 */
#define BATCHES_BEGIN	3
#define BATCHES_GO_ON	2

/* Lingering begins with one step, and takes a step longer each time, up to this. */
#define LINGER_US		200

/* After so many of them the server has a look at its own affairs. */
#define LINGERS_MAX		32

/*
 * A listener that has lingered in vain leaves it out, twice as often each time,
 * up to this: messages that come in bursts, as those of commits that are flushed
 * together, have no steady rate.
 */
#define LEAVE_OUT_MAX	63

/* A full circle of turns is put off by about so much, and one turn by so much. */
#define CIRCLE_US		10000
#define TURN_US			500

/* So long after the pass before, what came since says nothing of what will come. */
#define RECENT_US		10000


bool
herald_moderation_expects(const HeraldPass *pass)
{
	return pass->since_us < RECENT_US && pass->batches < BATCHES_PLENTY &&
		pass->batches * STEP_TAKES_US >= pass->since_us;
}

uint32_t
herald_moderation_linger(const HeraldPass *pass, uint32_t waiting, HeraldRestraint *restraint)
{
	uint32_t	gathered = pass->batches - pass->batches_before;
	uint32_t	us = HERALD_STEP_US * (1 + pass->lingers);

	if (!pass->several || waiting > 0 || pass->lingers >= LINGERS_MAX ||
		gathered < (pass->lingers == 0 ? BATCHES_BEGIN : BATCHES_GO_ON) ||
		pass->since_us >= RECENT_US ||
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

	/* Nothing new, nothing expected: nobody has anything to gain. */
	if (waiting == 0 || !(has_grown || expects))
		return false;
	share_us = (uint64_t) CIRCLE_US * k / waiting;
	return waited_us < (share_us < TURN_US ? share_us : TURN_US);
}
