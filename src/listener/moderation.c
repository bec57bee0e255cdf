/*-------------------------------------------------------------------------
 *
 * moderation.c
 *	  Fewer, fuller wakeups while notifications keep coming.
 *
 * To wake an idle backend costs the same for one message as for a thousand:
 * two signals, two process switches, an empty transaction, a system call to
 * send.  Network cards have the same trouble with interrupts and packets, and
 * we do as they and their drivers do (interrupt moderation, and polling under
 * load): whoever would be woken again at once stays awake a moment longer, and
 * nobody has to wake it.
 *
 * - A listener that finds messages of several senders each time it looks, lingers:
 *	 it sleeps some microseconds with its word at PROCESSING, which costs a sender
 *	 no signal, and then looks for more.  What counts is how many have gathered,
 *	 and not how short its sleep was: where the CPUs are short, most of that is
 *	 waiting for one, and where they are not, a message is not worth a delay.
 *
 * - With one sender there is nothing to gather: it waits for its commit each time.
 *	 If these follow one another faster than a sleep and a wakeup cost, and
 *	 no other listener is at work, the listener spins for so long, looking at its
 *	 word, and only then goes to sleep, which is how locks are waited for (Karlin
 *	 et al., Empirical Studies of Competitive Spinning for a Shared-Memory
 *	 Multiprocessor, SOSP 1991).
 *
 * - A listener that others wait for, while messages come in as fast as it reads,
 *	 passes its turn on a little later, so that the next one finds more to read.
 *	 One that reads faster than they come, since a wakeup carries few, does so if
 *	 more is to be expected meanwhile: else the faster it is, the less each wakeup
 *	 carries.  How much later depends on how many wait: all of them together are
 *	 put off by about CIRCLE_US, or by a step for each if that is more.
 *
 * A single notification is never held back: all three begin only when more came
 * in during a pass, or at most 10 ms after one.
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
 * a sleep by default: shorter ones would be no shorter, and a step takes twice
 * as long.
 */
#define STEP_US			50
#define STEP_TAKES_US	100

/* A wakeup that carried so many batches carried enough. */
#define BATCHES_PLENTY	64

/*
 * To linger is worth it when so many were there when it was woken, and so many
 * more each time that it looks again.  Random arrivals that are no more frequent
 * than wakeups are quick seldom come to the first.
 */
#define BATCHES_BEGIN	3
#define BATCHES_GO_ON	2

/*
 * To go to sleep and be woken costs about so much CPU time, the sender's part
 * included.  Spinning for as long costs at most twice that, if nothing comes.
 */
#define SPIN_US			20
#define SPIN_LOOKS		20		/* at the word, for each at the clock */

/*
 * Who has stayed awake in vain leaves it out, twice as often each time, up to
 * this: the sender may need the CPU that we spin on; and messages that come in
 * bursts, as those of commits that are flushed together, have no steady rate.
 */
#define LEAVE_OUT_MAX	63

/* A command of the client's is looked for each so many times. */
#define SPINS_PER_POLL	4

/* Lingering begins with one step, and takes a step longer each time, up to this. */
#define LINGER_US		200

/* After so many of both together the server has a look at its own affairs. */
#define STAYS_MAX		32

/* A full circle of turns is put off by about so much, and one turn by so much. */
#define CIRCLE_US		10000
#define TURN_US			500

/* So long after the delivery before, what came since says nothing of what will come. */
#define RECENT_US		10000

static struct
{
	bool		is_off;			/* in this delivery */
	uint64		apart_us;		/* since the end of the delivery before */
	bool		several;		/* it has messages of several senders */
	int			lingers;
	int			spins;
	uint32		batches;		/* that it has read messages of */
	uint32		batches_seen;	/* of these, when it last asked whether to stay */
	HeraldPosition last_batch;
	HeraldPosition began_at;	/* what was dispatched by then */
	int32		last_sender;
	instr_time	ended_at;		/* the delivery before; zero: long ago */
}			moderation;

/* Over all deliveries: how often this way to stay awake is to be left out, and how often it was. */
typedef struct Restraint
{
	uint32		to_leave_out;
	uint32		left_out;
} Restraint;

static Restraint from_lingering;
static Restraint from_spinning;

static bool linger(HeraldPosition position);
static bool spin(void);
static bool expects_more(void);
static bool leaves_out(Restraint *from);
static bool learn(Restraint *from, bool came);
static bool has_more(void);
static bool wait_a_moment(long us);
static bool is_all_sent(void);
static bool client_sends(void);
static uint64 us_since(instr_time start);


void
herald_moderation_begin(bool client_waits)
{
	moderation.is_off = client_waits || pq_is_send_pending() || whereToSendOutput != DestRemote;
	moderation.apart_us = INSTR_TIME_IS_ZERO(moderation.ended_at) ? PG_UINT64_MAX :
		us_since(moderation.ended_at);
	moderation.several = false;
	moderation.lingers = 0;
	moderation.spins = 0;
	moderation.batches = 0;
	moderation.batches_seen = 0;
	moderation.began_at = atomic_load_explicit(&herald_log->dispatched, memory_order_relaxed);
}

void
herald_moderation_sent(int32 sender_pid, HeraldPosition batch)
{
	if (batch != moderation.last_batch)
		moderation.batches++;
	moderation.last_batch = batch;
	if (sender_pid == moderation.last_sender)
		return;
	moderation.several = moderation.last_sender != 0;
	moderation.last_sender = sender_pid;
}

bool
herald_moderation_stay(HeraldPosition position)
{
	if (moderation.is_off || moderation.lingers + moderation.spins >= STAYS_MAX || InterruptPending ||
		herald_wakeup_waiting(herald_wakeup) > 0)
		return false;
	return moderation.several ? linger(position) : spin();
}

void
herald_moderation_end(bool at_end)
{
	HeraldPosition seen = moderation.began_at;
	bool		expects;
	instr_time	start;
	uint32		turns = atomic_load_explicit(&herald_wakeup->turns_max, memory_order_relaxed);

	expects = at_end && moderation.batches < BATCHES_PLENTY && expects_more();

	INSTR_TIME_SET_CURRENT(start);
	while (!moderation.is_off && !InterruptPending &&
		   herald_wakeup_has_turn(herald_wakeup, herald_shared_my_slot()))
	{
		HeraldPosition now = atomic_load_explicit(&herald_log->dispatched, memory_order_relaxed);
		uint32		waiting;

		/* Nothing new, nothing expected: nobody has anything to gain. */
		if ((now == seen && !expects) || (waiting = herald_wakeup_waiting(herald_wakeup)) == 0 ||
			us_since(start) >= Min(TURN_US, (uint64) CIRCLE_US * turns / waiting))
			break;
		seen = now;
		expects = false;

		if (!wait_a_moment(STEP_US))
			break;
	}
	INSTR_TIME_SET_CURRENT(moderation.ended_at);
}

static bool
linger(HeraldPosition position)
{
	uint32		gathered = moderation.batches - moderation.batches_seen;
	bool		had_more = has_more();

	moderation.batches_seen = moderation.batches;
	if (gathered < (moderation.lingers == 0 ? BATCHES_BEGIN : BATCHES_GO_ON) ||
		!expects_more() || leaves_out(&from_lingering))
		return false;

	/* Meanwhile the log is not held back on our account. */
	herald_wakeup_advance(herald_wakeup, herald_shared_my_slot(), position);
	if (!wait_a_moment(Min((long) STEP_US * (1 + moderation.lingers), LINGER_US)))
		return false;
	moderation.lingers++;

	/* What had come before says nothing of lingering. */
	return had_more || learn(&from_lingering, has_more());
}

static bool
spin(void)
{
	instr_time	start;

	/* With others at work, what gathers while we sleep is worth more.  One turn is ours, as a rule. */
	if (moderation.apart_us >= SPIN_US ||
		atomic_load_explicit(&herald_wakeup->turns_out, memory_order_relaxed) > 1)
		return false;
	if (leaves_out(&from_spinning) || !is_all_sent() ||
		(moderation.spins % SPINS_PER_POLL == SPINS_PER_POLL - 1 && client_sends()))
		return false;
	moderation.spins++;

	/* It came while we sent: of spinning this says nothing. */
	if (has_more())
		return true;

	INSTR_TIME_SET_CURRENT(start);
	do
	{
		for (int i = 0; i < SPIN_LOOKS; i++)
		{
			if (has_more())
				return learn(&from_spinning, true);
			herald_spin_delay();
		}
	} while (!InterruptPending && us_since(start) < SPIN_US);
	return learn(&from_spinning, false);
}

/* Whether a batch, and so more to read, is to be expected within a step, at the rate since the delivery before. */
static bool
expects_more(void)
{
	uint64		us;

	if (INSTR_TIME_IS_ZERO(moderation.ended_at))
		return false;
	us = us_since(moderation.ended_at);
	return us < RECENT_US && (uint64) moderation.batches * STEP_TAKES_US >= us;
}

/* Whether staying awake in this way is left out this time. */
static bool
leaves_out(Restraint *from)
{
	if (from->left_out >= from->to_leave_out)
		return false;
	from->left_out++;
	return true;
}

/* Learns from whether something came while we stayed awake; and returns that. */
static bool
learn(Restraint *from, bool came)
{
	from->left_out = 0;
	from->to_leave_out = came ? 0 : Min(2 * from->to_leave_out + 1, LEAVE_OUT_MAX);
	return came;
}

/* A hint, so relaxed: whether there is more is decided when we finish. */
static bool
has_more(void)
{
	_Atomic uint64_t *word = herald_wakeup_word(herald_wakeup, herald_shared_my_slot());

	return herald_word_state(atomic_load_explicit(word, memory_order_relaxed)) ==
		HERALD_LISTENER_AGAIN;
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

	if (!is_all_sent())
		return false;
	pgstat_report_wait_start(herald_wait(HERALD_WAIT_MODERATION));
	result = ppoll(&client, 1, &timeout, NULL);
	pgstat_report_wait_end();
	return result <= 0;
}

static bool
is_all_sent(void)
{
	return pq_flush_if_writable() == 0 && !pq_is_send_pending();
}

static bool
client_sends(void)
{
	struct pollfd client = {.fd = MyProcPort->sock, .events = POLLIN};

	return poll(&client, 1, 0) != 0;
}

static uint64
us_since(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MICROSEC(now);
}
