/*-------------------------------------------------------------------------
 *
 * room.c
 *	  Waiting in line for room in the ring.
 *
 * Room goes to any sender that comes just then: waking another one for it takes
 * time, in which nobody would use it.  But where many want room, those that are
 * running would take all of it from those that sleep.  So a sender that finds none gets
 * a place in line.  When there is room, the first in line is woken, and wakes the next
 * when it leaves.  If others have been quicker for too long, the first one starves: from
 * then on they leave it two segments.  Go's sync.Mutex treats a goroutine that starves
 * in such a way.
 *
 * A place is not a lock.  Its owner gives it up before it serves interrupts, as it waits: a
 * session that is being ended may wait for its client.  Nobody relies on its owner either: if
 * that does not take the room that is there, any process that looks passes it over.
 *
 * [F3] A process lines up first, and looks once more; one that has made room, or has
 * let go of what others need to make some, looks for the first in line after that.  One that
 * leaves looks for the next after it has given up its place.  So the one that was told,
 * and has left meanwhile, either sees the next one, or that one has lined up after that,
 * and sees the room.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "base/clock.h"
#include "base/compat.h"
#include "base/shared.h"
#include "base/waits.h"
#include "core/retention.h"
#include "notify/storage/room.h"

/* The first in line starves when it has waited for this time. */
#define STARVES_AFTER_MS	10

/* A batch is queued 1 ms later for each LATER_BYTES of its length, at most LATER_MAX_MS. */
#define LATER_BYTES			((uint64) 32 * 1024)
#define LATER_MAX_MS		100

/* The first in line is passed over if it has not taken room for this time. */
#define PASSED_OVER_MS		100

/*
 * Since when its owner waits, by herald_clock_ms(), with its slot in the low bits.  The
 * lowest one is the first.  0: none.
 */
typedef uint64 Ticket;

#define SLOT_BITS			20
#define ticket_slot(ticket)	((uint32) ((ticket) & ((1 << SLOT_BITS) - 1)))
#define ticket_ms(ticket)	((ticket) >> SLOT_BITS)

typedef struct Place
{
	_Atomic uint64_t ticket;	/* its owner enters it; anybody takes it away */
	_Atomic int32_t process;	/* its owner's number, from before that on */
} Place;

struct HeraldRoom
{
	_Atomic uint32_t waiting;	/* how many have a place */
	_Atomic uint64_t starving;	/* the ticket of one that starves; 0: none does */
	Place		places[FLEXIBLE_ARRAY_MEMBER];	/* by slot */
};

/* Its own.  Others may have passed it over. */
static Ticket ticket;

static void enter(void);
static Ticket first_in_line(void);
static bool take_away(Ticket from);
static void let_next_go_first(Ticket before);
static void wake(Ticket owner);


Size
herald_room_shared_size(void)
{
	return add_size(offsetof(HeraldRoom, places), mul_size(MaxBackends + 1, sizeof(Place)));
}

void
herald_room_shared_init(void)
{
	memset((void *) herald_room, 0, herald_room_shared_size());
}

uint64
herald_room_left(void)
{
	Ticket		starving = atomic_load_explicit(&herald_room->starving, memory_order_relaxed);

	return starving != 0 && starving != ticket ? 2 * herald_queue->segment_size : 0;
}

void
herald_room_line_up(uint64 length)
{
	uint64		now_ms = herald_clock_ms();

	if (ticket == 0)
		ticket = (now_ms + Min(length / LATER_BYTES, LATER_MAX_MS)) << SLOT_BITS | herald_shared_my_slot();
	enter();

	/* Also if others leave room to one that is not the first any more. */
	if ((now_ms >= ticket_ms(ticket) + STARVES_AFTER_MS || herald_room_left() > 0) &&
		first_in_line() == ticket)
		atomic_store(&herald_room->starving, ticket);
}

void
herald_room_wait(long timeout_ms)
{
	uint64		now_ms = herald_clock_ms();
	uint64		starves_ms = ticket_ms(ticket) + STARVES_AFTER_MS;
	Ticket		place = ticket;

	if (herald_room_pass_over())
		herald_room_announce();
	if (now_ms < starves_ms)
		timeout_ms = Min(timeout_ms, (long) (starves_ms - now_ms));
	else if (herald_retention_may_have_room(herald_queue) && first_in_line() == ticket)
		timeout_ms = Min(timeout_ms, STARVES_AFTER_MS);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, herald_wait(HERALD_WAIT_QUEUE_ROOM));
	ResetLatch(MyLatch);
	if (!INTERRUPTS_PENDING_CONDITION())
		return;
	herald_room_leave();
	CHECK_FOR_INTERRUPTS();
	ticket = place;
}

void
herald_room_leave(void)
{
	Ticket		mine = ticket;
	Ticket		starving = ticket;

	if (mine == 0)
		return;
	ticket = 0;
	if (take_away(mine))
		let_next_go_first(mine);

	/* It may have been passed over just before it said so. */
	if (atomic_compare_exchange_strong(&herald_room->starving, &starving, 0))
		herald_room_announce();
}

uint32
herald_room_in_line(void)
{
	return atomic_load(&herald_room->waiting) + (atomic_load(&herald_room->starving) != 0 ? 1 : 0);
}

void
herald_room_announce(void)
{
	Ticket		first;

	/* [F3] after the room, or the release: pairs with enter() */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&herald_room->waiting, memory_order_relaxed) == 0)
		return;
	first = first_in_line();
	if (first != 0 && first != ticket)
		wake(first);
}

bool
herald_room_pass_over(void)
{
	static Ticket seen;
	static uint64 seen_ms;
	Ticket		first = 0;

	if (atomic_load_explicit(&herald_room->waiting, memory_order_relaxed) > 0 &&
		herald_retention_may_have_room(herald_queue))
		first = first_in_line();
	if (first != seen || first == ticket)
	{
		seen = first;
		seen_ms = herald_clock_ms();
	}
	else if (first != 0 && herald_clock_ms() - seen_ms >= PASSED_OVER_MS && take_away(first))
	{
		/* Or it has just looked in vain once more: it may line up again. */
		wake(first);
		let_next_go_first(first);
		seen = 0;
	}
	return first != 0;
}

/* Also after it was passed over: it keeps its ticket. */
static void
enter(void)
{
	Place	   *place = &herald_room->places[ticket_slot(ticket)];

	if (atomic_load(&place->ticket) == ticket)
		return;
	atomic_store(&place->process, herald_my_proc_number());

	/* [F3] before looking once more: pairs with herald_room_announce() */
	atomic_fetch_add(&herald_room->waiting, 1);
	atomic_store(&place->ticket, ticket);
	atomic_thread_fence(memory_order_seq_cst);
}

/* 0: nobody has a place. */
static Ticket
first_in_line(void)
{
	Ticket		first = 0;

	for (uint32 slot = 0; slot < herald_control->slots; slot++)
	{
		Ticket		found = atomic_load(&herald_room->places[slot].ticket);

		if (found != 0 && (first == 0 || found < first))
			first = found;
	}
	return first;
}

/* False: it has been taken away already. */
static bool
take_away(Ticket from)
{
	Ticket		expected = from;

	if (!atomic_compare_exchange_strong(&herald_room->places[ticket_slot(from)].ticket, &expected, 0))
		return false;
	atomic_fetch_sub(&herald_room->waiting, 1);
	return true;
}

/*
 * A place has been given up.  If its owner starved, the next one may do so at once:
 * others would be quicker than it wakes up.
 */
static void
let_next_go_first(Ticket before)
{
	Ticket		next = first_in_line();
	bool		starves = next != 0 && herald_clock_ms() >= ticket_ms(next) + STARVES_AFTER_MS;

	if (atomic_compare_exchange_strong(&herald_room->starving, &before, starves ? next : 0) && starves &&
		atomic_load(&herald_room->places[ticket_slot(next)].ticket) != next)
		(void) atomic_compare_exchange_strong(&herald_room->starving, &next, 0);
	herald_room_announce();
}

static void
wake(Ticket owner)
{
	SetLatch(herald_proc_latch(atomic_load(&herald_room->places[ticket_slot(owner)].process)));
}
