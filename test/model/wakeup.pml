/*
 * wakeup.pml
 *	  The listener's word, the wakeup set, and turns: src/core/listener_word.c,
 *	  src/core/wakeup.c, and how src/notify/dispatch/ and src/notify/listener/ use them.
 *
 * Processes: COMMITTERS, each of which dispatches BATCHES batches and hands out
 * one turn after each; LISTENERS, one per slot, which wait for a signal and read,
 * and altogether may run STATEMENTS statements for their clients and exit EXITS
 * times (at rest or in the middle of reading), after which a new backend gets the
 * slot; with WATCHDOG, a process that takes turns back. With STUCK, listener 0 may
 * stop for ever with its turn; with OPEN_TRANSACTION, in its statement. With
 * REMAINS, the end of a transaction may leave the listener BUSY, as the next
 * transaction begins. With AWAITS, a listener may wait for a batch of its own
 * before it reads.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it. Interleaving such steps is sequential consistency, which is what
 * the code asks for at [W1] and [W2]. Two things are simpler than in C:
 *
 * - A load that only avoids the exchange after it (in yield, set_remove,
 *	 reasons_take) is no step: where it sees nothing, the exchange would find
 *	 nothing. In C these loads are relaxed: see RELAXED_LOAD_AT_EXIT, below.
 * - A serial is only ever compared. Instead of a counter the model has the
 *	 smallest number that no process remembers, so that states do not differ
 *	 by their serials alone.
 *
 * Left out, soundly: the cursor (any member of the set may be taken:
 * more than the code can do), time (the watchdog may take back any turn as soon
 * as it has seen it), the pump that the watchdog runs at each look (it would
 * hide the errors searched for), the try-lock (dispatch.pml), the bytes
 * (ring.pml). ROUNDS_MAX is any number. Pumps at refills, in the middle of
 * reading, may or may not happen.
 *
 * With AT_REST=n, a listener that ends a pass may see that the server is at rest: then it
 * hands out one turn while fewer than n are out, where the code hands out two. Whether it
 * is so does not matter here: it may be wrong each time.
 *
 * Checked, once no process can move any more: every listener is IDLE and has read
 * all batches that were marked while it was in the channel's map entry; turns_out
 * is the number of serials in slots, which is 0 unless a listener is stuck.
 * Always: no batch is read twice, turns_out is in 0..K (0..AT_REST), each turn is in a slot or
 * in a process's hands, and a word that is being read is moved only by its reader.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: with 2 committers and nothing else 0.4 million states (k = 1) and 1.6
 * million (k = 2); with a statement or an exit 5 to 100 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef LISTENERS
#define LISTENERS	2
#endif
#ifndef COMMITTERS
#define COMMITTERS	2
#endif
#ifndef BATCHES
#define BATCHES		1
#endif
#ifndef K
#define K			1
#endif
#ifndef STATEMENTS
#define STATEMENTS	0
#endif
#ifndef EXITS
#define EXITS		0
#endif

#define SLOTS		3			/* at least LISTENERS; the others are FREE */
#define ALL_TURNS	255
#define NONE		255
#ifdef AT_REST
#define AND_AT_REST		, at_rest
#define MAY_BE_AT_REST	if :: at_rest = 1 :: at_rest = 0 fi
#define TURNS_MAX		(at_rest -> AT_REST : K)
#define TURNS_OF_PASS	(at_rest -> 1 : ALL_TURNS)
#define PUMPED			at_rest = 0
#else
#define AND_AT_REST
#define MAY_BE_AT_REST	skip
#define TURNS_MAX		K
#define TURNS_OF_PASS	ALL_TURNS
#define PUMPED			skip
#endif
/* A word: position and state, as in queue_layout.h. */
#define FREE			0
#define IDLE			1
#define PENDING			2
#define SIGNALLED		3
#define PROCESSING		4
#define AGAIN			5
#define BUSY			6
#define BUSY_PENDING	7
#define WORD(p, s)		((p) * 8 + (s))
#define POSITION(w)		((w) / 8)
#define STATE(w)		((w) % 8)

byte word[SLOTS];
byte serial[SLOTS];			/* the serials of the turns in their slots [W2] */
byte set;						/* a bit per slot */
byte turns_out;
byte dispatched;
bit dispatching;
bit listens[SLOTS];		/* is entered in the channel map */
bit reasons[SLOTS];
byte slot_pid[SLOTS];		/* 0: not a listener */
bit interrupt[SLOTS];		/* notifyInterruptPending of the slot's backend */

/* Only in the model, for the checks and bounds. */
byte due[SLOTS];			/* batches marked for the listener, a bit each */
byte got[SLOTS];			/* batches that it has read */
byte start[SLOTS];			/* batches before this one are not for it */
byte in_hand;					/* turns counted in turns_out, but not in a slot */
byte remembered;				/* the serial that the watchdog has seen */
bit is_stuck[SLOTS];
byte statements, exits;			/* so far, of all listeners */
#if EXITS > 0
bit is_gone[SLOTS];			/* between two owners of the slot */
#define IS_STILL_THERE(s)	(to_pid != 0 && to_pid == slot_pid[s] && !is_gone[s])
#else
#define IS_STILL_THERE(s)	true
#endif

#define BIT(s)			(1 << (s))
#define BITS(from, to)	((1 << (to)) - (1 << (from)))
#define HOLDS(s)		(serial[s] != 0)

#define SERIALS_IN_SLOTS	(HOLDS(0) + HOLDS(1) + HOLDS(2))
#define IS_USED(n)	(serial[0] == (n) || serial[1] == (n) || serial[2] == (n) || remembered == (n))
#define FRESH	(!IS_USED(1) -> 1 : (!IS_USED(2) -> 2 : (!IS_USED(3) -> 3 : (!IS_USED(4) -> 4 : 5))))
#define TURNS_ARE_CONSERVED	(turns_out == SERIALS_IN_SLOTS + in_hand)

/* ---- listener_word.c ---- */

/* A compare-and-swap. */
inline move(s, position, state)
{
	d_step {
		moved = (word[s] == seen);
		if
		:: moved -> word[s] = WORD(position, state)
		:: else -> seen = word[s]
		fi
	}
}

/* Sets `moved` if the listener enters the set. */
inline herald_listener_mark(s, position)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == IDLE && POSITION(seen) <= position ->
		move(s, position, PENDING);
		if :: moved -> break :: else fi }
	:: atomic { STATE(seen) == BUSY && POSITION(seen) <= position ->
		move(s, position, BUSY_PENDING);
		if :: moved -> moved = 0; break :: else fi }
#ifndef MARK_LEAVES_READER_ALONE
	:: atomic { STATE(seen) == PROCESSING ->
		move(s, POSITION(seen), AGAIN);
		if :: moved -> moved = 0; break :: else fi }
#endif
	:: else -> break
	od
}

inline herald_listener_signal(s)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == PENDING ->
		move(s, POSITION(seen), SIGNALLED);
		if :: moved -> break :: else fi }
	:: else -> break
	od
}

/* Sets `was` to the state before. */
inline herald_listener_busy(s)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == IDLE ->
		was = IDLE;
		move(s, POSITION(seen), BUSY);
		if :: moved -> break :: else fi }
	:: atomic { STATE(seen) == PENDING || STATE(seen) == SIGNALLED ->
		was = STATE(seen);
		move(s, POSITION(seen), BUSY_PENDING);
		if :: moved -> break :: else fi }
	od;
	moved = 0
}

/* Sets `moved` if the listener is SIGNALLED now, by itself. */
inline herald_listener_rest(s)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == BUSY ->
		move(s, POSITION(seen), IDLE);
		if :: moved -> moved = 0; break :: else fi }
	:: atomic { STATE(seen) == BUSY_PENDING ->
		move(s, POSITION(seen), SIGNALLED);
		if :: moved -> break :: else fi }
	od
}

inline herald_listener_begin(s)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == PENDING || STATE(seen) == SIGNALLED ->
		from = POSITION(seen);
		move(s, from, PROCESSING);
		if :: moved -> break :: else fi }
	:: else -> from = 0; break
	od
}

inline herald_listener_advance(s, position)
{
	seen = word[s];
	do
	:: atomic { true ->
		move(s, position, STATE(seen));
		if :: moved -> moved = 0; break :: else fi }
	od
}

/* Sets `moved` if the listener is IDLE. */
inline herald_listener_finish(s, position)
{
	seen = word[s];
	do
	:: atomic { STATE(seen) == PROCESSING ->
		move(s, position, IDLE);
		if :: moved -> break :: else fi }
	:: atomic { else ->
		assert(STATE(seen) == AGAIN);
		move(s, position, PROCESSING);
		if :: moved -> moved = 0; break :: else fi }
	od
}

/* ---- wakeup.c: turns ---- */

/* [W1] pairs with return_turn() */
inline take_turn()
{
	out = turns_out;
	do
	:: atomic { out < TURNS_MAX ->
		d_step {
			taken = (turns_out == out);
			if
			:: taken -> turns_out++; in_hand++
			:: else -> out = turns_out
			fi
		};
		if :: taken -> break :: else fi }
	:: out >= TURNS_MAX -> break
	od;
	out = 0
}

/* [W1] pairs with take_turn() */
inline return_turn()
{
	d_step {
		assert(turns_out > 0 && in_hand > 0);
		turns_out--;
		in_hand--;
		assert(TURNS_ARE_CONSERVED);
		gave = 0
	}
}

/* [W2] An exchange. Sets `gave` if the turn is in our hands. */
#define take_out(s)	d_step { gave = HOLDS(s); in_hand = in_hand + gave; serial[s] = 0 }

inline herald_wakeup_yield(s)
{
	take_out(s);
	if :: gave -> return_turn() :: else fi
}

/* ---- wakeup.c: the set ---- */

/* [W1] pairs with set_is_empty() */
#define set_add(bits_to_add)	set = set | (bits_to_add)
#define set_remove(s)			set = set & ~BIT(s)

inline set_claim(s)
{
	d_step {
		if
		:: set & BIT(s) -> set = set & ~BIT(s); slot = s; bits = 0
		:: else -> bits = bits & ~BIT(s)
		fi
	}
}

/*
 * set_take_next(), which begins at any place, and visits the word there twice.
 * Nothing found: slot == NONE.
 */
inline set_take()
{
	atomic { slot = NONE; looks = 1; bits = set };
	do
	:: atomic { bits & BIT(0) -> set_claim(0); if :: slot != NONE -> break :: else fi }
	:: atomic { bits & BIT(1) -> set_claim(1); if :: slot != NONE -> break :: else fi }
	:: atomic { bits & BIT(2) -> set_claim(2); if :: slot != NONE -> break :: else fi }
	:: atomic { looks == 1 -> looks = 2; bits = set }
	:: atomic { looks == 2 && bits == 0 -> break }
	od;
	looks = 0
}

/* ---- wakeup.c: handing out turns ---- */

inline put_turn_into_slot()
{
	d_step {
		gave = HOLDS(slot);
		serial[slot] = FRESH;
		in_hand = in_hand - 1 + gave
	};
	/* An older turn that was not given back yet is given back here. */
	if
#ifdef OLD_TURN_FORGOTTEN
	:: gave -> d_step { in_hand--; gave = 0 }
#else
	:: gave -> return_turn()
#endif
	:: else fi
}

/* hand_turn_to(). Sets `moved` if the listener is SIGNALLED. */
inline hand_turn_to()
{
#ifdef SIGNALLED_BEFORE_TURN
	herald_listener_signal(slot);
	put_turn_into_slot()
#else
	put_turn_into_slot();
	herald_listener_signal(slot)
#endif
}

/* herald_signal_notifications(), of signal.c */
inline send_signal()
{
	d_step { gave = reasons[slot]; reasons[slot] = 1 };
	if
	:: !gave ->
#if EXITS > 0
		to_pid = slot_pid[slot];	/* [S2] */
#endif
		d_step {
			if
			:: IS_STILL_THERE(slot) -> interrupt[slot] = 1
			:: else				/* that process is gone */
			fi;
			to_pid = 0
		}
	:: else -> gave = 0
	fi
}

inline herald_wakeup_pump(turns)
{
	do
	:: handed_out < turns ->
#ifdef TURN_BEFORE_SET
		/* The other way round: a listener that enters the set in between is not seen. */
		take_turn();
		if :: taken :: else -> break fi;
		if :: set != 0 :: set == 0 -> return_turn(); break fi;
#else
		/* [W1] set_is_empty(): pairs with set_add() */
		if :: set != 0 :: set == 0 -> break fi;
		take_turn();
		if :: taken :: else -> break fi;
#endif
		taken = 0;
		set_take();
		if
		:: slot == NONE ->
			return_turn();			/* and look once more [W1] */
#ifdef NO_SECOND_LOOK
			break
#endif
		:: else ->
			hand_turn_to();
			if
			:: moved ->
				send_signal();
				atomic { handed_out = (turns == ALL_TURNS -> 0 : handed_out + 1); moved = 0 }
			:: else ->
				herald_wakeup_yield(slot);
#ifdef NO_SECOND_LOOK
				break
#endif
			fi
		fi;
		atomic { slot = 0; seen = 0 }
	:: else -> break
	od;
	atomic { handed_out = 0; taken = 0; slot = 0; seen = 0; gave = 0; moved = 0 }
}

#define LOCALS_OF_WAKER \
	byte seen, slot, handed_out, to_pid; \
	bit moved, taken, gave AND_AT_REST; \
	byte out, bits, looks

/* ---- dispatch.c: a batch, and then one turn ---- */

#define LOOK_UP(s) \
	listed = listed | (listens[s] << s); \
	due[s] = due[s] | ((listens[s] && position >= start[s]) << position)

inline mark_one(s)
{
	if
	:: listed & BIT(s) ->
		herald_listener_mark(s, position);
		atomic { entering = entering | (moved << s); moved = 0; seen = 0 }
	:: else fi
}

proctype committer()
{
	LOCALS_OF_WAKER;
	byte position, listed, entering, n;

	do
	:: n < BATCHES ->
		atomic { !dispatching -> dispatching = 1; n++; position = dispatched };
#ifndef PUBLISH_AFTER_MARK
		/* [W1] pairs with the loads in herald_wakeup_begin() and finish() */
		dispatched = position + 1;
#endif
		/* The channel's listeners are looked up in the map. */
		d_step {
			LOOK_UP(0);
			LOOK_UP(1);
			LOOK_UP(2)
		};
		/* herald_wakeup_mark_all() */
#ifdef SET_BEFORE_WORD
		set_add(listed);
#endif
		mark_one(0);
		mark_one(1);
		mark_one(2);
#ifndef SET_BEFORE_WORD
		if :: entering -> set_add(entering) :: else fi;
#endif
#ifdef PUBLISH_AFTER_MARK
		dispatched = position + 1;
#endif
		atomic { dispatching = 0; listed = 0; position = 0 };
		if
		:: entering -> entering = 0; herald_wakeup_pump(1)
		:: else fi
	:: else -> break
	od
}

/* ---- session.c and deliver.c ---- */

#ifdef STUCK
#define MAY_BE_STUCK	if :: me == 0 -> goto stuck :: true fi
#else
#define MAY_BE_STUCK	skip
#endif

#if EXITS > 0
#define MAY_EXIT		if :: atomic { exits < EXITS -> exits++ }; goto leave :: true fi
#else
#define MAY_EXIT		skip
#endif

/* herald_wakeup_busy(), and the pump that follows it */
inline herald_wakeup_busy()
{
	herald_listener_busy(me);
	if
	:: was == PENDING -> set_remove(me); take_out(me)
	:: was == SIGNALLED -> take_out(me)
	:: else fi;
	was = 0;
	if
	:: gave ->
		return_turn();
#ifndef BUSY_DOES_NOT_PUMP
		herald_wakeup_pump(ALL_TURNS)
#endif
	:: else fi
}

/* rest(), of session.c */
inline end_transaction()
{
	herald_listener_rest(me);
	if
	:: d_step { moved || STATE(word[me]) == SIGNALLED -> own_signal = 1; interrupt[me] = 1 }
	:: d_step { !moved && STATE(word[me]) != SIGNALLED }
	fi;
	atomic { moved = 0; seen = 0 }
}

#ifdef REMAINS
/*
 * COMMIT AND CHAIN, or a block that may have failed (may_fail_in_block(), of session.c):
 * the listener stays BUSY, and signals itself. The empty transaction that follows
 * ends as any other.
 */
#ifdef REMAINS_SILENTLY
#define tell_itself		skip
#else
#define tell_itself		d_step { own_signal = 1; interrupt[me] = 1 }
#endif
#define herald_session_end_transaction \
	if \
	:: tell_itself \
	:: end_transaction() \
	fi
#define IS_BUSY(s)	(STATE(word[s]) == BUSY || STATE(word[s]) == BUSY_PENDING)
#else
#define herald_session_end_transaction	end_transaction()
#endif

#define read_to_end \
	assert(from <= to && (got[me] & BITS(from, to)) == 0); \
	got[me] = got[me] | BITS(from, to); \
	from = to

inline herald_wakeup_requeue()
{
#ifdef REQUEUE_LEAVES_SET
	herald_wakeup_yield(me);
	set_add(BIT(me));
	word[me] = WORD(from, PENDING)
#else
	herald_wakeup_yield(me);
	word[me] = WORD(from, PENDING);
	set_add(BIT(me))
#endif
}

proctype listener(byte me)
{
	LOCALS_OF_WAKER;
	byte from, to, was;
	bit own_signal;

end_idle:
	do
	:: atomic { interrupt[me] -> interrupt[me] = 0; MAY_BE_STUCK };
		/* herald_deliver(), in the empty transaction */
		d_step { gave = reasons[me] || own_signal; reasons[me] = 0; own_signal = 0 };
		if
		:: gave ->
			gave = 0;
#ifdef AWAITS
			/* BUSY while it waits for its own batch: see waiters.pml */
			if
			:: herald_wakeup_busy(); herald_listener_rest(me); moved = 0
			:: true
			fi;
#endif
#ifdef LOOK_BEFORE_BEGIN
			to = dispatched;
#endif
			herald_listener_begin(me);
			if
			:: moved ->
				atomic { set_remove(me); moved = 0 };
#ifndef LOOK_BEFORE_BEGIN
				/* [W1] after the word has changed: pairs with the dispatcher's store */
				to = dispatched;
#endif
				atomic { true -> read_to_end };
				do
				:: true ->
					MAY_BE_STUCK;
					MAY_EXIT;
#ifdef REFILLS
					if
					:: true -> herald_listener_advance(me, from); herald_wakeup_pump(ALL_TURNS)
					:: true
					fi;
#endif
					herald_listener_finish(me, from);
					if :: moved -> break :: else fi;
#ifndef NO_LOOK_AFTER_AGAIN
					/* [W1] as above */
					to = dispatched;
#endif
					if
					:: atomic { true -> read_to_end }
					:: true -> herald_wakeup_requeue(); break
					fi
				od;
				atomic { from = 0; to = 0; moved = 0; seen = 0 }
			:: else fi;
			herald_wakeup_yield(me);
			MAY_BE_AT_REST;
			herald_wakeup_pump(TURNS_OF_PASS);
			PUMPED
		:: else fi
#ifdef REMAINS
		;
		if :: IS_BUSY(me) -> end_transaction() :: else fi
#endif

#if STATEMENTS > 0
	:: atomic { statements < STATEMENTS -> statements++;
		/* herald_session_statement() */
#ifdef REMAINS
		if :: IS_BUSY(me) -> goto in_transaction :: else fi;
#endif
		reasons[me] = 0 };
		herald_wakeup_busy();
#ifdef REMAINS
in_transaction:
#endif
		/* The transaction, which need not end. */
#ifdef OPEN_TRANSACTION
		if :: me == 0 -> goto stuck :: true fi;
#endif
		herald_session_end_transaction
#endif

#if EXITS > 0
	:: atomic { exits < EXITS -> exits++ };
leave:	/* herald_session_leave(): leaves the map first */
		atomic { listens[me] = 0; due[me] = 0; got[me] = 0; start[me] = 0; from = 0; to = 0 };
#if defined(EXIT_KEEPS_TURN)
		word[me] = WORD(0, FREE);
		set_remove(me);
#elif defined(RELAXED_LOAD_AT_EXIT)
		/* The first load of herald_wakeup_yield(), before the store to the word is visible. */
		was = HOLDS(me);
		word[me] = WORD(0, FREE);
		set_remove(me);
		if :: was -> was = 0; herald_wakeup_yield(me) :: else fi;
#else
		word[me] = WORD(0, FREE);
		set_remove(me);
		herald_wakeup_yield(me);
#endif
		slot_pid[me] = 0;
		reasons[me] = 0;
		herald_wakeup_pump(ALL_TURNS);
		d_step { interrupt[me] = 0; own_signal = 0; is_gone[me] = 1 };

		/* A new backend: herald_session_join(), herald_subscriptions_prepare() */
		d_step { slot_pid[me] = exits + 1; is_gone[me] = 0 };
		reasons[me] = 0;
		from = dispatched;
		atomic { assert(STATE(word[me]) == FREE); word[me] = WORD(from, BUSY); from = 0 };
		listens[me] = 1;
		/* [W1] batches that are dispatched already are not for it; see dispatch.pml */
		d_step { start[me] = dispatched; due[me] = due[me] & ~BITS(0, dispatched) };
		end_transaction()
#endif
	od;

#if defined(STUCK) || defined(OPEN_TRANSACTION)
stuck:
	is_stuck[0] = 1;
end_stuck:
	false
#endif
}

/* ---- watchdog.c ---- */

#ifdef WATCHDOG
/* look(), twice, and herald_wakeup_rescue() */
#define LOOK_AT(s) \
	atomic { HOLDS(s) -> remembered = serial[s] }; \
	d_step { \
		gave = (serial[s] == remembered); \
		if :: gave -> serial[s] = 0; in_hand++ :: else fi; \
		remembered = 0 \
	}; \
	if :: gave -> return_turn(); herald_wakeup_pump(ALL_TURNS) :: else fi

proctype watchdog()
{
	LOCALS_OF_WAKER;

end_asleep:
	do
	:: LOOK_AT(0)
	:: LOOK_AT(1)
	:: LOOK_AT(2)
	od
}
#endif

/* ---- when nothing moves any more ---- */

#define IS_DONE(s)	((s) >= LISTENERS || is_stuck[s] || \
					 (STATE(word[s]) == IDLE && (due[s] & ~got[s]) == 0))

init
{
	byte i;

	atomic {
		do
		:: i < LISTENERS ->
			word[i] = WORD(0, IDLE); listens[i] = 1; slot_pid[i] = 1;
			run listener(i); i++
		:: else -> break
		od;
		do
		:: i < LISTENERS + COMMITTERS -> run committer(); i++
		:: else -> break
		od;
		i = 0;
#ifdef WATCHDOG
		run watchdog()
#endif
	};
	timeout;
	assert(dispatched == COMMITTERS * BATCHES);
	assert(IS_DONE(0) && IS_DONE(1) && IS_DONE(2));
	assert(in_hand == 0 && TURNS_ARE_CONSERVED);
#if !defined(STUCK) || defined(WATCHDOG)
	assert(turns_out == 0);
#endif
end_checked:
	false
}
