/*-------------------------------------------------------------------------
 *
 * wakeup.c
 *	  The set of listeners to wake, and turns, which limit how many are awake at a time.
 *
 * Waking 300 listeners from inside a commit makes 300 processes runnable at once: the
 * committer sends 300 signals, and then all of these processes compete for the CPUs.  Instead
 * the committer enters them into a set, and at most k of them are signalled at a time.  A
 * listener that has read its messages hands its turn to the next one in the set.  PostgreSQL's
 * shared invalidation queue has such a daisy chain for backends that fell behind (Tom Lane,
 * "sinval rewrite", pgsql-patches, June 2008).  A pass also reads messages that arrive during
 * it, so each wakeup carries more when the load is high.
 *
 * A turn is a serial number in the holder's slot, not only a count.  An exchange puts the
 * number into the slot, and the first process that notices the end of the turn exchanges the
 * number for 0. Only the process that took the number out of the slot lowers the count of
 * turns [W2].
 *
 * The committer hands out one turn.  The listener that got it reads, returns the turn, and then
 * hands out all free turns.  No listener is forgotten while one turn is held and its holder
 * makes progress or is rescued; without a watchdog, the committer hands out all turns.
 *
 * At rest a chain for each CPU has gaps: a CPU is idle while the next listener and its client
 * are woken.  So a listener that sees that nothing else is sent hands out two turns, up to
 * turns_at_rest.  The number of chains doubles with each step: the first client need not wait
 * for a crowd, and the last one hardly waits longer than if all listeners were signalled at
 * once.  Others keep to k.  Since k <= turns_at_rest, a process that finds no free turn knows
 * in both cases that a turn is held, and its holder looks into the set after returning it [W1].
 *
 * A listener that does not use its turn delays the others until the watchdog takes the turn
 * back.  Its next wakeups delay no other listener: it is signalled, and the turn goes to the
 * next one at once.  The same applies to a listener that waits for something other than its
 * client.
 *
 * [W1] No wakeup is lost.  Two handshakes, each "write mine, then read yours"
 * on both sides, in one sequentially consistent order:
 *
 *	 entering the set, then looking for a turn	(mark, requeue → pump)
 *	 giving back a turn, then looking into the set	(yield, leave → pump)
 *
 *	 publishing a position, then looking at the word	(publish_stretch → mark)
 *	 changing the word, then looking at the position	(begin, finish)
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "wakeup.h"

#include <string.h>

#include "stop_point.h"

#define BITS_PER_WORD	64

#define TURNS_HANDED_OUT_AT_REST	2

static bool is_distrusted(HeraldWakeup *wakeup, uint32_t slot);
static void regain_trust(HeraldWakeup *wakeup, uint32_t slot);
static bool pump(HeraldWakeup *wakeup, uint32_t turns, _Atomic uint32_t *turns_max, HeraldSendSignal send, void *arg);
static bool take_turn(HeraldWakeup *wakeup, _Atomic uint32_t *turns_max);
static void return_turn(HeraldWakeup *wakeup);
static void set_add(HeraldWakeup *wakeup, uint32_t word, uint64_t bits);
static void set_remove(HeraldWakeup *wakeup, uint32_t slot);
static bool set_is_empty(HeraldWakeup *wakeup);
static bool set_take_next(HeraldWakeup *wakeup, uint32_t *slot);
static bool set_claim(HeraldWakeup *wakeup, uint32_t slot);
static bool hand_turn_to(HeraldWakeup *wakeup, uint32_t slot, uint32_t *serial);
static bool take_back(HeraldWakeup *wakeup, uint32_t slot, uint32_t serial);

static inline _Atomic uint64_t *
set_words(HeraldWakeup *wakeup)
{
	return (_Atomic uint64_t *) herald_wakeup_turn(wakeup, wakeup->slots);
}

static inline uint32_t
set_length(uint32_t slots)
{
	return (slots + BITS_PER_WORD - 1) / BITS_PER_WORD;
}


size_t
herald_wakeup_memory(uint32_t slots)
{
	static_assert(sizeof(HeraldTurn) == sizeof(uint64_t), "turns keep the set aligned");

	return sizeof(HeraldWakeup) + slots * (sizeof(uint64_t) + sizeof(HeraldTurn)) +
		set_length(slots) * sizeof(uint64_t);
}

void
herald_wakeup_init(HeraldWakeup *wakeup, uint32_t slots, uint32_t turns_max)
{
	memset((void *) wakeup, 0, herald_wakeup_memory(slots));
	wakeup->slots = slots;
	atomic_init(&wakeup->turns_max, turns_max);
	atomic_init(&wakeup->turns_at_rest, turns_max);
	atomic_init(&wakeup->next_serial, 1);
}

void
herald_wakeup_join(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition start)
{
	uint32_t	used = atomic_load_explicit(&wakeup->slots_used, memory_order_relaxed);

	while (used <= slot &&
		   !atomic_compare_exchange_weak_explicit(&wakeup->slots_used, &used, slot + 1,
												  memory_order_seq_cst,
												  memory_order_relaxed))
		;
	herald_listener_join(herald_wakeup_word(wakeup, slot), start);
}

void
herald_wakeup_leave(HeraldWakeup *wakeup, uint32_t slot)
{
	herald_listener_leave(herald_wakeup_word(wakeup, slot));
	HERALD_HOLD_POINT("exit-word-free");

	/*
	 * A dispatcher may set the bit again now.  That is harmless: the word is
	 * FREE.
	 */
	set_remove(wakeup, slot);
	(void) herald_wakeup_yield(wakeup, slot);
}

/*
 * Neighbours enter the set together.  A marked listener that is not in the set yet may have
 * read its messages already; then the waker finds that it is no longer PENDING.
 */
uint32_t
herald_wakeup_mark_all(HeraldWakeup *wakeup, const uint32_t *slots, uint32_t count,
					   HeraldPosition position)
{
	uint32_t	entered = 0;
	uint32_t	word = 0;
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		if (!herald_listener_mark(herald_wakeup_word(wakeup, slots[i]), position))
			continue;
		if (bits != 0 && slots[i] / BITS_PER_WORD != word)
		{
			set_add(wakeup, word, bits);
			bits = 0;
		}
		word = slots[i] / BITS_PER_WORD;
		bits |= UINT64_C(1) << (slots[i] % BITS_PER_WORD);
		entered++;
	}
	if (bits != 0)
		set_add(wakeup, word, bits);
	return entered;
}

bool
herald_wakeup_pump(HeraldWakeup *wakeup, uint32_t turns, HeraldSendSignal send, void *arg)
{
	return pump(wakeup, turns, &wakeup->turns_max, send, arg);
}

bool
herald_wakeup_pump_at_rest(HeraldWakeup *wakeup, HeraldSendSignal send, void *arg)
{
	return pump(wakeup, TURNS_HANDED_OUT_AT_REST, &wakeup->turns_at_rest, send, arg);
}

static bool
pump(HeraldWakeup *wakeup, uint32_t turns, _Atomic uint32_t *turns_max, HeraldSendSignal send, void *arg)
{
	uint32_t	handed_out = 0;
	uint32_t	besides = 0;

	while ((handed_out < turns || turns == HERALD_NO_TURNS) && !set_is_empty(wakeup) &&
		   take_turn(wakeup, turns_max))
	{
		uint32_t	slot;
		uint32_t	serial;

		HERALD_HOLD_POINT("turn-taken");
		if (!set_take_next(wakeup, &slot))
			return_turn(wakeup);	/* and look once more [W1] */
		else if (!hand_turn_to(wakeup, slot, &serial))
			(void) herald_wakeup_yield(wakeup, slot);
		else
		{
			bool		can_act = send(slot, arg);

			if (can_act && turns != HERALD_NO_TURNS && !is_distrusted(wakeup, slot))
				handed_out++;
			else
			{
				(void) take_back(wakeup, slot, serial);

				/*
				 * We may be inside a commit, so stop here; the watchdog
				 * signals the rest.
				 */
				if (++besides == HERALD_BESIDES_MAX)
					break;
			}
		}
	}
	return handed_out + besides > 0;
}

bool
herald_wakeup_can_pump(HeraldWakeup *wakeup)
{
	return atomic_load_explicit(&wakeup->turns_out, memory_order_relaxed) <
		atomic_load_explicit(&wakeup->turns_max, memory_order_relaxed) &&
		!set_is_empty(wakeup);
}

bool
herald_wakeup_is_anyone_waiting(HeraldWakeup *wakeup)
{
	return !set_is_empty(wakeup);
}

uint32_t
herald_wakeup_waiting(HeraldWakeup *wakeup)
{
	uint32_t	used = set_length(atomic_load_explicit(&wakeup->slots_used, memory_order_relaxed));
	uint32_t	count = 0;

	for (uint32_t i = 0; i < used; i++)
		count += (uint32_t) __builtin_popcountll(atomic_load_explicit(&set_words(wakeup)[i],
																	  memory_order_relaxed));
	return count;
}

void
herald_wakeup_trust(HeraldWakeup *wakeup, uint32_t slot)
{
	atomic_store_explicit(&herald_wakeup_turn(wakeup, slot)->distrust, 0, memory_order_relaxed);
}

bool
herald_wakeup_busy(HeraldWakeup *wakeup, uint32_t slot)
{
	switch (herald_listener_busy(herald_wakeup_word(wakeup, slot)))
	{
		case HERALD_LISTENER_PENDING:
			set_remove(wakeup, slot);
			return herald_wakeup_yield(wakeup, slot);
		case HERALD_LISTENER_SIGNALLED:
			return herald_wakeup_yield(wakeup, slot);
		default:
			return false;
	}
}

bool
herald_wakeup_rest(HeraldWakeup *wakeup, uint32_t slot)
{
	return herald_listener_rest(herald_wakeup_word(wakeup, slot));
}

bool
herald_wakeup_hold(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
				   HeraldPosition position, HeraldPosition *had_read)
{
	HeraldPosition from = herald_wakeup_has_read(wakeup, queue, slot);

	*had_read = from;

	/*
	 * [W3] The position may come from another session, and may lie beyond
	 * published batches that have not marked us yet: the word must not move
	 * past those.
	 */
	return herald_listener_hold(herald_wakeup_word(wakeup, slot), position < from ? position : from);
}

/*
 * [W3] `settled` is loaded first: each batch below it that concerns us has marked our word.
 * So if nothing is pending after that load, all of these batches have been read.
 */
HeraldPosition
herald_wakeup_has_read(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot)
{
	HeraldPosition settled = atomic_load_explicit(&queue->settled, memory_order_seq_cst);
	uint64_t	word = atomic_load_explicit(herald_wakeup_word(wakeup, slot), memory_order_seq_cst);
	HeraldPosition next = herald_word_position(word);

	return herald_listener_is_pending(word) || next > settled ? next : settled;
}

bool
herald_wakeup_begin(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot,
					HeraldPosition *from, HeraldPosition *to)
{
	if (!herald_listener_begin(herald_wakeup_word(wakeup, slot), from))
		return false;

	/* If we started without a signal, none is needed any more. */
	set_remove(wakeup, slot);
	regain_trust(wakeup, slot);

	/*
	 * [W1] after the word has changed: pairs with publish_stretch() of
	 * sequencer.c
	 */
	*to = atomic_load_explicit(&queue->dispatched, memory_order_seq_cst);
	return true;
}

void
herald_wakeup_advance(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition position)
{
	herald_listener_advance(herald_wakeup_word(wakeup, slot), position);
}

bool
herald_wakeup_finish(HeraldWakeup *wakeup, HeraldQueue *queue, uint32_t slot, HeraldPosition *to)
{
	if (herald_listener_finish(herald_wakeup_word(wakeup, slot), *to))
		return true;

	/* [W1] as in herald_wakeup_begin() */
	*to = atomic_load_explicit(&queue->dispatched, memory_order_seq_cst);
	return false;
}

/*
 * Return the turn first: once the listener is in the set again it can get a new turn, which
 * must not be returned in place of the old one.
 */
void
herald_wakeup_requeue(HeraldWakeup *wakeup, uint32_t slot, HeraldPosition from)
{
	(void) herald_wakeup_yield(wakeup, slot);
	herald_listener_requeue(herald_wakeup_word(wakeup, slot), from);
	HERALD_HOLD_POINT("requeued");
	set_add(wakeup, slot / BITS_PER_WORD, UINT64_C(1) << (slot % BITS_PER_WORD));
}

bool
herald_wakeup_yield(HeraldWakeup *wakeup, uint32_t slot)
{
	HeraldTurn *turn = herald_wakeup_turn(wakeup, slot);

	/*
	 * [W2] Not relaxed: at exit it must not come before the store that made
	 * the word FREE.
	 */
	if (atomic_load_explicit(&turn->serial, memory_order_seq_cst) == 0 ||
		atomic_exchange_explicit(&turn->serial, 0, memory_order_seq_cst) == 0)
		return false;
	return_turn(wakeup);
	return true;
}

bool
herald_wakeup_rescue(HeraldWakeup *wakeup, uint32_t slot, uint32_t serial)
{
	if (serial == 0 || !take_back(wakeup, slot, serial))
		return false;
	atomic_store_explicit(&herald_wakeup_turn(wakeup, slot)->distrust, HERALD_DISTRUST, memory_order_relaxed);
	return true;
}

/*
 * `settled` is read before the words [L5]: everything below it has been marked already, so the
 * word of each listener that still has to read it is pending.  Everything from `settled` on is
 * needed in any case.
 */
HeraldPosition
herald_wakeup_needed(HeraldWakeup *wakeup, HeraldQueue *queue)
{
	HeraldPosition needed = atomic_load_explicit(&queue->settled, memory_order_acquire);

	/*
	 * Only the spiller needs an exact answer, and it is the one that writes
	 * this.
	 */
	HeraldPosition lost = atomic_load_explicit(&queue->lost, memory_order_relaxed);
	uint32_t	used = atomic_load_explicit(&wakeup->slots_used, memory_order_seq_cst);

	for (uint32_t slot = 0; slot < used; slot++)
	{
		/*
		 * [L6] acquire: pairs with the transitions; the listener's reads
		 * below the word are complete.
		 */
		uint64_t	word = atomic_load_explicit(herald_wakeup_word(wakeup, slot),
												memory_order_acquire);

		if (herald_word_position(word) < needed && herald_word_position(word) >= lost &&
			herald_listener_is_pending(word))
			needed = herald_word_position(word);
	}
	return needed;
}

/* A hint, as are the stores: one wakeup more or less with a turn does no harm. */
static bool
is_distrusted(HeraldWakeup *wakeup, uint32_t slot)
{
	return atomic_load_explicit(&herald_wakeup_turn(wakeup, slot)->distrust,
								memory_order_relaxed) != 0;
}

static void
regain_trust(HeraldWakeup *wakeup, uint32_t slot)
{
	HeraldTurn *turn = herald_wakeup_turn(wakeup, slot);
	uint8_t		distrust = atomic_load_explicit(&turn->distrust, memory_order_relaxed);

	if (distrust != 0)
		atomic_store_explicit(&turn->distrust, distrust - 1, memory_order_relaxed);
}

static bool
take_turn(HeraldWakeup *wakeup, _Atomic uint32_t *turns_max)
{
	/* [W1] pairs with return_turn() */
	uint32_t	out = atomic_load_explicit(&wakeup->turns_out, memory_order_seq_cst);

	while (out < atomic_load_explicit(turns_max, memory_order_relaxed))
	{
		if (atomic_compare_exchange_weak_explicit(&wakeup->turns_out, &out, out + 1,
												  memory_order_seq_cst,
												  memory_order_seq_cst))
			return true;
	}
	return false;
}

static void
return_turn(HeraldWakeup *wakeup)
{
	/* [W1] pairs with take_turn() */
	uint32_t	before = atomic_fetch_sub_explicit(&wakeup->turns_out, 1, memory_order_seq_cst);

	assert(before > 0);
	(void) before;
}

/*
 * Write the turn into the slot first, then make the word SIGNALLED: in the other order the
 * listener could finish before it has the turn to return.  False: the listener is no longer
 * PENDING; the turn is in its slot nevertheless.
 */
static bool
hand_turn_to(HeraldWakeup *wakeup, uint32_t slot, uint32_t *serial)
{
	HeraldTurn *turn = herald_wakeup_turn(wakeup, slot);

	do
		*serial = atomic_fetch_add_explicit(&wakeup->next_serial, 1, memory_order_relaxed);
	while (*serial == 0);

	/* If an older turn has not been returned yet, it is returned here. */
	if (atomic_exchange_explicit(&turn->serial, *serial, memory_order_seq_cst) != 0)
		return_turn(wakeup);

	HERALD_HOLD_POINT("turn-in-slot");
	return herald_listener_signal(herald_wakeup_word(wakeup, slot));
}

/* Take back exactly this turn, not a later one of the same listener.  [W2] */
static bool
take_back(HeraldWakeup *wakeup, uint32_t slot, uint32_t serial)
{
	if (!atomic_compare_exchange_strong_explicit(&herald_wakeup_turn(wakeup, slot)->serial,
												 &serial, 0, memory_order_seq_cst,
												 memory_order_relaxed))
		return false;
	return_turn(wakeup);
	return true;
}

static void
set_add(HeraldWakeup *wakeup, uint32_t word, uint64_t bits)
{
	/* [W1] pairs with set_is_empty() */
	atomic_fetch_or_explicit(&set_words(wakeup)[word], bits, memory_order_seq_cst);
}

static void
set_remove(HeraldWakeup *wakeup, uint32_t slot)
{
	_Atomic uint64_t *word = &set_words(wakeup)[slot / BITS_PER_WORD];
	uint64_t	bit = UINT64_C(1) << (slot % BITS_PER_WORD);

	if (atomic_load_explicit(word, memory_order_relaxed) & bit)
		atomic_fetch_and_explicit(word, ~bit, memory_order_seq_cst);
}

static bool
set_is_empty(HeraldWakeup *wakeup)
{
	uint32_t	used = set_length(atomic_load_explicit(&wakeup->slots_used, memory_order_seq_cst));

	for (uint32_t i = 0; i < used; i++)
	{
		/* [W1] pairs with set_add() */
		if (atomic_load_explicit(&set_words(wakeup)[i], memory_order_seq_cst) != 0)
			return false;
	}
	return true;
}

/* Take the first slot at or after the cursor out of the set, wrapping around. */
static bool
set_take_next(HeraldWakeup *wakeup, uint32_t *slot)
{
	uint32_t	length = set_length(atomic_load_explicit(&wakeup->slots_used, memory_order_seq_cst));
	uint32_t	cursor = atomic_load_explicit(&wakeup->cursor, memory_order_relaxed);
	uint32_t	first = cursor / BITS_PER_WORD;

	/*
	 * The cursor's word is visited twice: first the bits above the cursor, at
	 * the end those below.
	 */
	for (uint32_t i = 0; i <= length && length > 0; i++)
	{
		uint32_t	at = (first + i) % length;
		uint64_t	bits = atomic_load_explicit(&set_words(wakeup)[at], memory_order_seq_cst);

		if (i == 0 && first < length)
			bits &= ~UINT64_C(0) << (cursor % BITS_PER_WORD);
		for (; bits != 0; bits &= bits - 1)
		{
			*slot = at * BITS_PER_WORD + (uint32_t) __builtin_ctzll(bits);
			if (set_claim(wakeup, *slot))
			{
				atomic_store_explicit(&wakeup->cursor, *slot + 1, memory_order_relaxed);
				return true;
			}
		}
	}
	return false;
}

/* False: another process has taken this slot. */
static bool
set_claim(HeraldWakeup *wakeup, uint32_t slot)
{
	uint64_t	bit = UINT64_C(1) << (slot % BITS_PER_WORD);

	return (atomic_fetch_and_explicit(&set_words(wakeup)[slot / BITS_PER_WORD], ~bit,
									  memory_order_seq_cst) & bit) != 0;
}
