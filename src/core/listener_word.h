/*-------------------------------------------------------------------------
 *
 * listener_word.h
 *	  A listener's state and position in one atomic word.
 *
 * The table of states and events is in src/core/README.md; this file has one function
 * per event.  Each comment names the caller: "the listener" is the backend itself, "the
 * dispatcher" the process with the dispatch lock, "a waker" a process that has taken the
 * listener out of the wakeup set.
 *
 * Copyright (c) 2026, the pg_herald contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef HERALD_LISTENER_WORD_H
#define HERALD_LISTENER_WORD_H

#include "queue_layout.h"

typedef _Atomic uint64_t HeraldListenerWord;

/*
 * The position beside the state is the next one that the listener will read.  In IDLE and BUSY
 * nothing from this position on is known to concern the listener, and the position does not
 * hold the queue back; in the other states it does.
 */
typedef enum HeraldListenerState
{
	HERALD_LISTENER_FREE = 0,	/* no backend listens in this slot */
	HERALD_LISTENER_IDLE,		/* waits for a command; nothing pending */
	HERALD_LISTENER_PENDING,	/* in the wakeup set, not signalled yet */
	HERALD_LISTENER_SIGNALLED,	/* has been signalled, and has not acted on it
								 * yet */
	HERALD_LISTENER_PROCESSING, /* reads the queue */
	HERALD_LISTENER_AGAIN,		/* the same, and there may be more than it has
								 * seen */
	HERALD_LISTENER_BUSY,		/* in a transaction; nothing pending */
	HERALD_LISTENER_BUSY_PENDING	/* in a transaction; reads when it ends */
} HeraldListenerState;

/* Does the listener have something to read, so that its position holds the queue back? */
static inline bool
herald_listener_is_pending(uint64_t word)
{
	unsigned	state = herald_word_state(word);

	return state != HERALD_LISTENER_FREE && state != HERALD_LISTENER_IDLE &&
		state != HERALD_LISTENER_BUSY;
}

/* The backend, in a transaction, starts to listen: FREE → BUSY. */
extern void herald_listener_join(HeraldListenerWord *word, HeraldPosition start);

/* The backend stops listening or exits: any state → FREE. */
extern void herald_listener_leave(HeraldListenerWord *word);

/*
 * The dispatcher found a message at `position` for the listener.  True: the listener was IDLE
 * and is PENDING now, so the caller must put it into the wakeup set.
 */
extern bool herald_listener_mark(HeraldListenerWord *word, HeraldPosition position);

/* A waker: PENDING → SIGNALLED.  False: the listener reads without a signal. */
extern bool herald_listener_signal(HeraldListenerWord *word);

/*
 * The listener runs a statement.  Returns the previous state: if SIGNALLED, the caller must
 * return the turn that may have come with the signal.
 */
extern HeraldListenerState herald_listener_busy(HeraldListenerWord *word);

/* The listener's transaction has ended.  True: it is SIGNALLED now, and must wake itself. */
extern bool herald_listener_rest(HeraldListenerWord *word);

/*
 * The listener, in a transaction, will read from this position, or from its pending position
 * if that is earlier: BUSY → BUSY_PENDING.  False: the listener is in another state.
 */
extern bool herald_listener_hold(HeraldListenerWord *word, HeraldPosition position);

/* The listener starts reading.  False: nothing is pending. */
extern bool herald_listener_begin(HeraldListenerWord *word, HeraldPosition *position);

/* The listener has read up to `position`, and continues. */
extern void herald_listener_advance(HeraldListenerWord *word, HeraldPosition position);

/*
 * The listener has read up to `position`, and wants to stop.  False: it stays PROCESSING,
 * because a message may have arrived that it has not seen.
 */
extern bool herald_listener_finish(HeraldListenerWord *word, HeraldPosition position);

/*
 * The listener has read up to `position`, and leaves the rest for its next turn: PENDING.  The
 * caller must put it into the wakeup set.
 */
extern void herald_listener_requeue(HeraldListenerWord *word, HeraldPosition position);

#endif							/* HERALD_LISTENER_WORD_H */
