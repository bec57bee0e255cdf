/*-------------------------------------------------------------------------
 *
 * wakeup.h
 *	  The set of listeners to wake, and turns, which limit how many are awake at a time.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_WAKEUP_H
#define HERALD_WAKEUP_H

#include "listener_word.h"
#include "queue.h"

/* Per-listener state that is touched once per wakeup, not once per message. */
typedef struct HeraldTurn
{
	_Atomic uint32_t serial;	/* the turn that it holds; 0: none */
	_Atomic uint8_t distrust;	/* number of wakeups without a turn that still
								 * follow; see HERALD_DISTRUST */
	uint8_t		unused[3];
} HeraldTurn;

/*
 * A listener that did not use a turn may not use the next one either.  It is woken without a
 * turn for this number of wakeups.
 */
#define HERALD_DISTRUST	UINT8_MAX

/*
 * Maximum number of listeners that one call signals without a turn.  This bounds the time that
 * a committer spends; the watchdog signals the rest.
 */
#define HERALD_BESIDES_MAX	64

/* Hand out all turns that are free; or none, and signal listeners without a turn. */
#define HERALD_ALL_TURNS	UINT32_MAX
#define HERALD_NO_TURNS		0

typedef struct HeraldWakeup
{
	uint32_t	slots;			/* constant */
	_Atomic uint32_t turns_max; /* k, at least 1 */
	_Atomic uint32_t turns_at_rest; /* the same at rest, at least k */

	/* Wakers. */
	_Atomic uint32_t _Alignas(HERALD_CACHE_LINE) turns_out;
	_Atomic uint32_t next_serial;
	_Atomic uint32_t cursor;	/* where the search for the next listener
								 * begins */
	_Atomic uint32_t slots_used;	/* no slot from here on was ever used */

	/*
	 * words[slots], then turns[slots], then set[]: a bit per slot.  The words
	 * are adjacent because the dispatcher visits many of them.
	 */
	_Atomic uint64_t _Alignas(HERALD_CACHE_LINE) words[];
} HeraldWakeup;

/*
 * Send the signal that goes with a turn.  Called with no lock held [D2].  False: the listener
 * cannot act on it now, so other listeners need not wait for it.
 */
typedef bool (*HeraldSendSignal) (uint32_t slot, void *arg);

extern size_t herald_wakeup_memory(uint32_t slots);

/* At rest there are as many turns, until turns_at_rest is set. */
extern void herald_wakeup_init(HeraldWakeup *wakeup, uint32_t slots, uint32_t turns_max);

/* The word of the listener in this slot. */
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

/* The backend starts to listen: FREE → BUSY, with nothing to read before `start`. */
extern void herald_wakeup_join(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition start);

/* The backend stops listening, from any state.  Returns its turn: pump afterwards. */
extern void herald_wakeup_leave(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The dispatcher found a message for these slots.  Returns the number of slots that entered
 * the wakeup set; if any, herald_wakeup_pump() must follow once the dispatch lock is released.
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
 * Signal listeners in the wakeup set while turns are free, at most `turns` of them.  Any
 * process may call this.  True: a listener was signalled.
 *
 * Free turns may remain: a listener that got a turn must pump with HERALD_ALL_TURNS, at the
 * latest when it returns its own.
 *
 * HERALD_NO_TURNS: signal up to HERALD_BESIDES_MAX of them without a turn, for the case that
 * turns are not used.
 */
extern bool herald_wakeup_pump(HeraldWakeup *wakeup, uint32_t turns, HeraldSendSignal send,
							   void *arg);

/*
 * The same by a listener that has read everything on a server at rest: it hands out two turns,
 * while fewer than turns_at_rest are out.
 */
extern bool herald_wakeup_pump_at_rest(HeraldWakeup *wakeup, HeraldSendSignal send, void *arg);

/* Are there free turns, and listeners in the wakeup set?  A hint. */
extern bool herald_wakeup_can_pump(HeraldWakeup *wakeup);

/* Is any listener in the wakeup set?  Sequentially consistent with entering it [D4]. */
extern bool herald_wakeup_is_anyone_waiting(HeraldWakeup *wakeup);

/* The approximate number of listeners in the wakeup set. */
extern uint32_t herald_wakeup_waiting(HeraldWakeup *wakeup);

/* The slot changes its owner: forget that the previous owner did not use its turns. */
extern void herald_wakeup_trust(HeraldWakeup *wakeup, uint32_t slot);

/* The listener runs a statement.  True: it returned a turn, pump. */
extern bool herald_wakeup_busy(HeraldWakeup *wakeup, uint32_t slot);

/* The listener's transaction has ended.  True: it has something to read. */
extern bool herald_wakeup_rest(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The listener, in a transaction, will read from `position`, which it may have passed, or from
 * its current position if that is earlier.  *had_read is the position up to which it has read
 * all of its channels.  False: its present state does not allow this.  By the spiller: see
 * core/retention.c.
 */
extern bool herald_wakeup_hold(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
							   HeraldPosition position, HeraldPosition *had_read);

/*
 * The position up to which the listener has read all of its channels: everything before it has
 * been read, or is not for this listener.  By the listener.
 */
extern HeraldPosition herald_wakeup_has_read(HeraldWakeup *wakeup, HeraldQueue *queue,
											 uint32_t slot);

/*
 * The listener starts reading.  False: nothing to read.  On success it must read from *from to
 * *to.
 */
extern bool herald_wakeup_begin(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
								HeraldPosition *from, HeraldPosition *to);

/* The listener has read up to `position`, and continues. */
extern void herald_wakeup_advance(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition position);

/*
 * The listener has read up to *to.  True: it is IDLE now.  False: there may be more; *to has
 * moved, continue reading.
 */
extern bool herald_wakeup_finish(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
								 HeraldPosition *to);

/*
 * The listener has read enough for one turn: it goes back into the wakeup set and will
 * continue at `from`.  Returns its turn: pump.
 */
extern void herald_wakeup_requeue(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition from);

/* Does the listener hold a turn now?  Another process can take it back at any moment. */
static inline bool
herald_wakeup_has_turn(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load_explicit(&herald_wakeup_turn(wakeup, slot)->serial,
								memory_order_relaxed) != 0;
}

/* Return the listener's turn, if it has one.  True: it had one, pump.  [W2] */
extern bool herald_wakeup_yield(HeraldWakeup *wakeup, uint32_t slot);

/*
 * The watchdog takes back exactly the turn that it saw earlier.  True: it was still held,
 * pump.
 */
extern bool herald_wakeup_rescue(HeraldWakeup *wakeup, uint32_t slot, uint32_t serial);

/*
 * No listener needs the queue below this position now.  New ones start at `dispatched`.  (A
 * session that resumes may begin to need more: [F4].)
 */
extern HeraldPosition herald_wakeup_needed(HeraldWakeup *wakeup, HeraldQueue *queue);

#endif							/* HERALD_WAKEUP_H */
