/*-------------------------------------------------------------------------
 *
 * wakeup.h
 *	  Which listeners are to be woken, and turns: so many are woken at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAKEUP_H
#define HERALD_WAKEUP_H

#include "listener_word.h"
#include "queue.h"

/* What belongs to one listener but is touched once per wakeup, not per message. */
typedef struct HeraldTurn
{
	_Atomic uint32_t serial;	/* which turn it holds; 0: none */
	_Atomic uint8_t stalled;	/* it has made no progress since its last wakeup */
	_Atomic uint8_t distrust;	/* wakeups for which others do not wait; see HERALD_DISTRUST */
	uint16_t	unused;
} HeraldTurn;

/*
 * A listener that did not use a turn may do so again.  So many times it is woken
 * besides those that have turns, and more often if it was not trusted anyway.
 */
#define HERALD_DISTRUST	8

/*
 * So many listeners are signalled in one call besides those that have turns.  A committer is
 * not to be kept for long; the watchdog signals the rest.
 */
#define HERALD_BESIDES_MAX	64

/* As many turns as there are. */
#define HERALD_ALL_TURNS	UINT32_MAX

typedef struct HeraldWakeup
{
	uint32_t	slots;			/* constant */
	_Atomic uint32_t turns_max; /* k, at least 1 */

	/* Wakers. */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint32_t turns_out;
	_Atomic uint32_t next_serial;
	_Atomic uint32_t cursor;	/* where the search for the next one begins */
	_Atomic uint32_t slots_used;	/* no slot from here on was ever used */

	/*
	 * words[slots], then turns[slots], then set[]: a bit per slot.  The words
	 * stand close together because the dispatcher walks over many of them.
	 */
	_Alignas(HERALD_CACHE_LINE) _Atomic uint64_t words[];
} HeraldWakeup;

/*
 * Send the signal that goes with a turn.  Called with no lock held [D2].  False:
 * the listener cannot act on it now, and others need not wait for it.
 */
typedef bool (*HeraldSendSignal) (uint32_t slot, void *arg);

extern size_t herald_wakeup_memory(uint32_t slots);
extern void herald_wakeup_init(HeraldWakeup *wakeup, uint32_t slots, uint32_t turns_max);

/* The listener in this slot. */
static inline HeraldListenerWord *
herald_wakeup_word(HeraldWakeup *wakeup, uint32_t slot)
{
	return &wakeup->words[slot];
}

static inline HeraldTurn *
herald_wakeup_turn(HeraldWakeup *wakeup, uint32_t slot)
{
	return (HeraldTurn *) &wakeup->words[wakeup->slots] + slot;
}

/* The listener begins: FREE → BUSY, with nothing before `start` to read. */
extern void herald_wakeup_join(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition start);

/*
 * The listener ends, in whatever state it is.  Gives back its turn: pump
 * afterwards.
 */
extern void herald_wakeup_leave(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The dispatcher found a message for these slots.  Returns how many of them
 * entered the wakeup set; if any, herald_wakeup_pump() must follow once the
 * dispatch lock is released.
 */
extern uint32_t herald_wakeup_mark_all(HeraldWakeup *wakeup, const uint32_t *slots,
									   uint32_t count, HeraldPosition position);

/* The same for one slot.  True: it entered the wakeup set. */
static inline bool
herald_wakeup_mark(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition position)
{
	return herald_wakeup_mark_all(wakeup, &slot, 1, position) > 0;
}

/*
 * Signal listeners of the wakeup set while there are turns, `turns` (at least
 * 1) of them at most.  By anybody.  True: a turn was handed out.
 *
 * Turns may be left then that nobody holds: a listener that got one has to pump for
 * all of them, at the latest when it gives its own back.
 */
extern bool herald_wakeup_pump(HeraldWakeup *wakeup, uint32_t turns, HeraldSendSignal send,
							   void *arg);

/* Are there turns, and listeners for them?  A hint. */
extern bool herald_wakeup_can_pump(HeraldWakeup *wakeup);

/* Is anyone in the wakeup set?  Sequentially consistent with entering it [D4]. */
extern bool herald_wakeup_is_anyone_waiting(HeraldWakeup *wakeup);

/* How many are in the wakeup set, about. */
extern uint32_t herald_wakeup_waiting(HeraldWakeup *wakeup);

/* The slot has, or will have, another owner: forget that this one did not use its turns. */
extern void herald_wakeup_trust(HeraldWakeup *wakeup, uint32_t slot);

/* The listener runs a statement.  True: it gave back a turn, pump. */
extern bool herald_wakeup_busy(HeraldWakeup *wakeup, uint32_t slot);

/* The listener's transaction has ended.  True: it has something to read. */
extern bool herald_wakeup_rest(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The listener, in a transaction, will read from a position that it may have passed, or
 * from where it is, if that is earlier.  *had_read is where it had got to with all of its
 * channels.  False: it cannot, in its present state.  Under the border lock: see
 * core/retention.c.
 */
extern bool herald_wakeup_hold(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
							   HeraldPosition position, HeraldPosition *had_read);

/*
 * Where the listener has got to with all of its channels: everything before has been
 * read, or is not for it.  By the listener.
 */
extern HeraldPosition herald_wakeup_has_read(HeraldWakeup *wakeup, HeraldQueue *queue,
											 uint32_t slot);

/*
 * The listener starts reading.  False: nothing to read.  On success the stretch
 * from *from to *to is to be read.
 */
extern bool herald_wakeup_begin(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
								HeraldPosition *from, HeraldPosition *to);

/* The listener has read up to here, and goes on. */
extern void herald_wakeup_advance(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition position);

/*
 * The listener has read up to *to.  True: it is IDLE.  False: there may be more;
 * *to has moved, go on reading.
 */
extern bool herald_wakeup_finish(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
								 HeraldPosition *to);

/*
 * The listener has read enough for one turn: it goes back into the wakeup set,
 * with `from` as the position to go on at.  Gives back its turn: pump.
 */
extern void herald_wakeup_requeue(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition from);

/* Does the listener hold a turn just now?  It can be taken back any moment. */
static inline bool
herald_wakeup_has_turn(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load_explicit(&herald_wakeup_turn(wakeup, slot)->serial,
								memory_order_relaxed) != 0;
}

/* Give back the turn, if there is one.  True: there was, pump.  [W2] */
extern bool herald_wakeup_yield(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The watchdog takes back the very turn that it saw out earlier.  True: it was
 * still out, pump.
 */
extern bool herald_wakeup_rescue(HeraldWakeup *wakeup, uint32_t slot, uint32_t serial);

/*
 * No listener, now or later, needs anything of the queue below this position.
 * (Later ones start at what is dispatched by then.)
 */
extern HeraldPosition herald_wakeup_needed(HeraldWakeup *wakeup, HeraldQueue *queue);

#endif							/* HERALD_WAKEUP_H */
