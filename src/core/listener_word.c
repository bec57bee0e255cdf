/*-------------------------------------------------------------------------
 *
 * listener_word.c
 *	  A listener's state and position in one atomic word.
 *
 * After Joel Jacobson, "Optimize LISTEN/NOTIFY", pgsql-hackers, July 2025, whose states are
 * IDLE, SIGNALLED and PROCESSING.  PENDING is added for the daisy chain (the listener is
 * signalled later, in its turn), BUSY so that a backend in the middle of a transaction needs
 * no signal at all.
 *
 * Every transition is sequentially consistent [W1].  The dispatcher publishes the position,
 * then looks at the word; the listener changes the word, then looks at the position.  A wakeup
 * could be lost if the two saw these steps in different orders.  [L6] Each transition also
 * releases the positions that the listener has read: pairs with the load in
 * herald_wakeup_needed().
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#include "listener_word.h"

static inline uint64_t
load(HeraldListenerWord *word)
{
	return atomic_load_explicit(word, memory_order_seq_cst);
}

/* Replace the word that we saw; false, with *seen updated, if it has changed. */
static inline bool
move(HeraldListenerWord *word, uint64_t *seen, HeraldPosition position, HeraldListenerState state)
{
	return atomic_compare_exchange_strong_explicit(word, seen,
												   herald_word_make(position, state),
												   memory_order_seq_cst,
												   memory_order_seq_cst);
}

void
herald_listener_join(HeraldListenerWord *word, HeraldPosition start)
{
	assert(herald_word_state(load(word)) == HERALD_LISTENER_FREE);
	atomic_store_explicit(word, herald_word_make(start, HERALD_LISTENER_BUSY),
						  memory_order_seq_cst);
}

void
herald_listener_leave(HeraldListenerWord *word)
{
	atomic_store_explicit(word, herald_word_make(0, HERALD_LISTENER_FREE),
						  memory_order_seq_cst);
}

bool
herald_listener_mark(HeraldListenerWord *word, HeraldPosition position)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		HeraldPosition next = herald_word_position(seen);

		switch ((HeraldListenerState) herald_word_state(seen))
		{
			case HERALD_LISTENER_IDLE:
				/* It may have read this message before we came to mark it. */
				if (next > position)
					return false;
				if (move(word, &seen, position, HERALD_LISTENER_PENDING))
					return true;
				continue;

			case HERALD_LISTENER_BUSY:
				if (next > position || move(word, &seen, position, HERALD_LISTENER_BUSY_PENDING))
					return false;
				continue;

			case HERALD_LISTENER_PROCESSING:
				if (move(word, &seen, next, HERALD_LISTENER_AGAIN))
					return false;
				continue;

			case HERALD_LISTENER_FREE:
			case HERALD_LISTENER_PENDING:
			case HERALD_LISTENER_SIGNALLED:
			case HERALD_LISTENER_AGAIN:
			case HERALD_LISTENER_BUSY_PENDING:
				break;			/* coalesced */
		}
		return false;
	}
}

bool
herald_listener_signal(HeraldListenerWord *word)
{
	uint64_t	seen = load(word);

	while (herald_word_state(seen) == HERALD_LISTENER_PENDING)
	{
		if (move(word, &seen, herald_word_position(seen), HERALD_LISTENER_SIGNALLED))
			return true;
	}
	return false;
}

HeraldListenerState
herald_listener_busy(HeraldListenerWord *word)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		HeraldListenerState state = (HeraldListenerState) herald_word_state(seen);
		HeraldListenerState next;

		switch (state)
		{
			case HERALD_LISTENER_IDLE:
				next = HERALD_LISTENER_BUSY;
				break;
			case HERALD_LISTENER_PENDING:
			case HERALD_LISTENER_SIGNALLED:
				next = HERALD_LISTENER_BUSY_PENDING;
				break;
			default:
				return state;
		}
		if (move(word, &seen, herald_word_position(seen), next))
			return state;
	}
}

bool
herald_listener_rest(HeraldListenerWord *word)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		HeraldPosition next = herald_word_position(seen);

		switch ((HeraldListenerState) herald_word_state(seen))
		{
			case HERALD_LISTENER_BUSY:
				if (move(word, &seen, next, HERALD_LISTENER_IDLE))
					return false;
				break;
			case HERALD_LISTENER_BUSY_PENDING:
				if (move(word, &seen, next, HERALD_LISTENER_SIGNALLED))
					return true;
				break;
			default:
				return false;
		}
	}
}

bool
herald_listener_hold(HeraldListenerWord *word, HeraldPosition position)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		switch ((HeraldListenerState) herald_word_state(seen))
		{
			case HERALD_LISTENER_BUSY:
				break;
			case HERALD_LISTENER_BUSY_PENDING:
				if (herald_word_position(seen) <= position)
					return true;
				break;
			default:
				return false;
		}
		if (move(word, &seen, position, HERALD_LISTENER_BUSY_PENDING))
			return true;
	}
}

bool
herald_listener_begin(HeraldListenerWord *word, HeraldPosition *position)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		switch ((HeraldListenerState) herald_word_state(seen))
		{
			case HERALD_LISTENER_PENDING:
			case HERALD_LISTENER_SIGNALLED:
				*position = herald_word_position(seen);
				if (move(word, &seen, *position, HERALD_LISTENER_PROCESSING))
					return true;
				break;
			default:
				return false;
		}
	}
}

void
herald_listener_advance(HeraldListenerWord *word, HeraldPosition position)
{
	uint64_t	seen = load(word);

	while (!move(word, &seen, position, (HeraldListenerState) herald_word_state(seen)))
		;
}

bool
herald_listener_finish(HeraldListenerWord *word, HeraldPosition position)
{
	uint64_t	seen = load(word);

	for (;;)
	{
		if (herald_word_state(seen) == HERALD_LISTENER_PROCESSING)
		{
			if (move(word, &seen, position, HERALD_LISTENER_IDLE))
				return true;
		}
		else
		{
			assert(herald_word_state(seen) == HERALD_LISTENER_AGAIN);
			if (move(word, &seen, position, HERALD_LISTENER_PROCESSING))
				return false;
		}
	}
}

void
herald_listener_requeue(HeraldListenerWord *word, HeraldPosition position)
{
	atomic_store_explicit(word, herald_word_make(position, HERALD_LISTENER_PENDING),
						  memory_order_seq_cst);
}
