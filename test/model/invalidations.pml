/*
 * invalidations.pml
 *	  The queue of invalidations: src/core/inval_queue.c, and how
 *	  src/inval/ uses it.
 *
 * Processes: INSERTERS, which insert INSERTS times altogether, COUNT messages each
 * time; READERS, one per slot, which read when they are signalled, and up to READS
 * times (altogether) by themselves, and leave up to LEAVES times, at rest or in the
 * middle of reading, after which a new backend may get the slot; with RESCUES, a
 * rescuer, which takes back up to RESCUES turns, with the lock held: it stands for the
 * inserters, which do that at their checks, and for those that signal a reader and find
 * it busy. With STUCK, the last reader may stop for ever, before it reads or in the
 * middle of reading.
 *
 * A step is one access to shared memory, with what is local to the process, or
 * protected by the lock, around it: sequential consistency, which is what the
 * code asks for at [I4]. At [I1], [I2], [I3] and [I5] acquires and releases keep
 * two accesses in order; for each there is a variant that exchanges the two. A
 * message is two words, each of which is its position. With COARSE a message is
 * written in one step and copied in one, and so is the search for the reader that
 * is furthest behind.
 *
 * A quantum is 1 message, and half of the ring 2. Two things are simpler than in C:
 *
 * - A load that only avoids the store after it (in clear_stuck()) is no step.
 * - A turn's serial is only ever compared. Instead of a counter the model has the
 *	 smallest number that no process remembers.
 *
 * Left out, soundly: whether the holder has read since the last check (a turn may be taken
 * back at any time). freshness.pml has `committing`; waiters.pml checks
 * that signals arrive.
 *
 * Checked, always: a reader accepts as valid only the messages since its join,
 * whole, each once, without a gap; only readers whose next message is overwritten
 * are reset; a turn is given only when none is out, and not to a reader that was
 * rescued and has not read since; the rescuer takes back only the turn that it
 * saw. Once no process can move any more: all that a reader has not read yet is in
 * the ring; the turn is free, or held by a reader that has stopped and was not
 * reset; only a reader that has stopped is marked as stuck. Then one more insert
 * follows, and once nothing moves again, no reader is far behind, except one that
 * has stopped, unless a turn is out. So if inserts go on, each reader that is far
 * behind is signalled, and hands the turn on.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: up to 0.25 million states; with fine steps and more of everything 6 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef READERS
#define READERS		2
#endif
#ifndef INSERTERS
#define INSERTERS	1
#endif
#ifndef INSERTS
#define INSERTS		4
#endif
#ifndef COUNT
#define COUNT		1
#endif
#ifndef SIZE
#define SIZE		3
#endif
#ifndef READS
#define READS		1
#endif
#ifndef READ_QUANTUM
#define READ_QUANTUM	1
#endif
#ifndef RESCUES
#define RESCUES	0
#endif
#ifndef LEAVES
#define LEAVES		0
#endif

#define FIRST_LOOK		((SIZE + 1) / 2)		/* SIZE / CLEANUP_MIN */
#define QUANTUM			1		/* SIZE / CLEANUP_QUANTUM */
#define FAR_BEHIND		((SIZE + 1) / 2)		/* SIZE / FAR_BEHIND */

/* A reader's word: the position to read next, and the state. */
#define FREE			0
#define READING			1
#define RESET			2
#define WORD(p, s)		((p) * 4 + (s))
#define POSITION(w)		((w) / 4)
#define STATE(w)		((w) % 4)

/* The turn: its serial, and its holder's slot + 1. */
#define NOBODY			0
#define TURN(n, holder)	((n) * 4 + (holder))
#define SERIAL(t)		((t) / 4)
#define HOLDER(t)		((t) % 4)

#define PROCESSES		6
#define INSERTER(n)		(READERS + (n))
#define THE_RESCUER		5

typedef message { byte half[2] };

message ring[SIZE];
byte head;
bit locked;
byte look_at = FIRST_LOOK;		/* with the lock held */
byte word[READERS];
bit stuck[READERS];
byte turn;
bit signalled[READERS];			/* CATCH_UP among the slot's reasons */

/* Only in the model, for the checks and bounds. */
byte saw[PROCESSES];			/* the turn that a process remembers */
bit is_stopped[READERS];
bit was_rescued[READERS];		/* and has not read since */
bit is_old;						/* the rescuer has seen the turn that is out */
byte inserts = INSERTS;			/* still to come, of all processes */
byte reads, leaves, rescues;
bit is_at_rest;

#define REMEMBERS(n, p)	(SERIAL(saw[p]) == (n))
#define IS_USED(n)	(SERIAL(turn) == (n) || REMEMBERS(n, 0) || REMEMBERS(n, 1) || REMEMBERS(n, 2) || \
					 REMEMBERS(n, 3) || REMEMBERS(n, 4) || REMEMBERS(n, 5))
#define FRESH	(!IS_USED(1) -> 1 : (!IS_USED(2) -> 2 : (!IS_USED(3) -> 3 : \
				 (!IS_USED(4) -> 4 : (!IS_USED(5) -> 5 : (!IS_USED(6) -> 6 : 7))))))

#ifdef RESCUE_WITHOUT_SERIAL
#define IS_THAT_TURN	(HOLDER(turn) == HOLDER(saw[me]))
#else
#define IS_THAT_TURN	(turn == saw[me])
#endif

#ifdef TURN_IS_STORED
#define CAN_GIVE		true
#else
#define CAN_GIVE		(turn == saw[me])
#endif

#ifdef ASKS_STUCK_AGAIN
#define MAY_HAVE_TURN(s)	true
#else
#define MAY_HAVE_TURN(s)	(!stuck[s])
#endif

#define IS_FAR_BEHIND(w)	(STATE(w) == READING && POSITION(w) + FAR_BEHIND <= head_seen)

/* With COARSE a whole scan or message is one step, else each look or half of a message. */
#ifdef COARSE
#define SCAN	atomic
#define LOOK
#define MESSAGE	atomic
#define HALF
#else
#define SCAN
#define LOOK	atomic
#define MESSAGE
#define HALF	atomic
#endif

#define LOCALS \
	byte slot, seen, found, furthest, head_seen; \
	bit moved

#define clear_stuck(s)	d_step { stuck[s] = 0; was_rescued[s] = 0 }

#define lock()		atomic { !locked -> locked = 1 }
#define unlock()	locked = 0

/* ---- inval_queue.c: the turn ---- */

/* Ends the turn that `me` saw, and no other; sets `moved` if it did. */
inline take_turn_back()
{
	d_step {
		moved = (turn == saw[me]);
		if
		:: moved -> turn = TURN(SERIAL(turn), NOBODY); is_old = 0
		:: else
		fi;
		saw[me] = 0
	}
}

/* Sets `found` to the reader's slot + 1, or 0 if there is none. */
inline furthest_behind()
{
	SCAN {
	LOOK { head_seen = head; furthest = 255 };
	do
	:: LOOK { seen != 0 ->
		if
		:: MAY_HAVE_TURN(slot) -> furthest = POSITION(seen); found = slot + 1
		:: else
		fi;
		seen = 0;
		slot++ }
	:: LOOK { seen == 0 && slot < READERS ->
		if
		:: IS_FAR_BEHIND(word[slot]) && POSITION(word[slot]) < furthest -> seen = word[slot]
		:: else -> slot++
		fi }
	:: LOOK { seen == 0 && slot == READERS ->
		saw[me] = (found != 0 -> saw[me] : 0);
		head_seen = 0;
		furthest = 0;
		slot = 0;
		break }
	od
	}
}

/* Sets `found` to the slot + 1 that is to be signalled, or 0. */
inline give_turn()
{
	do
	:: atomic { HOLDER(turn) != NOBODY -> break }
	:: atomic { HOLDER(turn) == NOBODY -> saw[me] = turn };
		furthest_behind();
		if :: found == 0 -> break :: else fi;
		d_step {
			moved = CAN_GIVE;
			if
			:: moved ->
				assert(HOLDER(turn) == NOBODY);
				assert(!was_rescued[found - 1]);
				turn = TURN(FRESH, found);
				saw[me] = turn;
				is_old = 0
			:: else -> found = 0; saw[me] = 0
			fi
		};
		if :: !moved -> break :: else fi;
#ifdef GIVES_UNSEEN
		saw[me] = 0;
		break;
#endif
		/* [I4] pairs with herald_inval_leave() and needed_by() */
		if
		:: atomic { STATE(word[found - 1]) == READING -> saw[me] = 0; break }
		:: STATE(word[found - 1]) != READING
		fi;
		take_turn_back();
		if
		:: moved -> found = 0
		:: else ->
#ifndef MARK_IS_LEFT
			/* [I5] The rescuer's mark would be left to a new reader in this slot. */
			clear_stuck(found - 1);
#endif
			found = 0;
			break
		fi
	od;
	moved = 0
}

inline take_it_back_and_give_it()
{
	take_turn_back();
#ifdef NOT_HANDED_ON
	moved = 0
#else
	if :: moved -> give_turn() :: else fi
#endif
}

/* If this slot has the turn, hands it to the next reader. */
inline hand_turn_on()
{
	/* [I4] after the word has changed: pairs with give_turn() */
	atomic { saw[me] = turn; if :: HOLDER(turn) != me + 1 -> saw[me] = 0 :: else fi };
	if
	:: saw[me] != 0 -> take_it_back_and_give_it()
	:: else
	fi
}

/* herald_catch_up_wake(), once the lock is released */
#define wake \
	if \
	:: atomic { found != 0 -> signalled[found - 1] = 1; found = 0 } \
	:: else \
	fi

/* ---- inval_queue.c: insert ---- */

#ifdef RESETS_ONE_TOO_MANY
#define IS_OVERRUN(w)	(POSITION(w) + SIZE <= from + COUNT)
#else
#define IS_OVERRUN(w)	(POSITION(w) + SIZE < from + COUNT)
#endif

inline needed_by()
{
	seen = word[slot];				/* [I3] pairs with herald_inval_read() */
	do
	:: atomic { STATE(seen) != READING -> break }
	:: atomic { STATE(seen) == READING && !IS_OVERRUN(seen) ->
		needed = (POSITION(seen) < needed -> POSITION(seen) : needed);
		break }
	:: atomic { STATE(seen) == READING && IS_OVERRUN(seen) ->
#ifdef NO_RESET
		break;
#endif
#ifdef RESET_LOOKS_FIRST
		saw[me] = turn };
		atomic {
#endif
		/* [I2] before the messages are written; [I4] pairs with give_turn() */
		if
		:: word[slot] == seen ->
			assert(POSITION(seen) + SIZE < from + COUNT);
			word[slot] = WORD(POSITION(seen), RESET);
			seen = 0
		:: else -> seen = word[slot]
		fi };
		if
		:: atomic { seen == 0 ->
#ifndef RESET_LOOKS_FIRST
			saw[me] = turn;
#endif
			if :: HOLDER(saw[me]) != slot + 1 -> saw[me] = 0 :: else fi };
#ifndef RESET_KEEPS_TURN
			if :: saw[me] != 0 -> take_turn_back() :: else fi;
#endif
#ifdef RESET_KEEPS_TURN
			saw[me] = 0;
#endif
			break
		:: else
		fi
	od;
	seen = 0;
	moved = 0;
	slot++
}

inline look_after_readers()
{
	needed = from + COUNT;
	do
	:: slot < READERS -> needed_by()
	:: else -> break
	od;
	atomic {
		slot = 0;
		look_at = from + COUNT - needed;
		look_at = (look_at < FIRST_LOOK -> FIRST_LOOK : (look_at / QUANTUM + 1) * QUANTUM);
		look_at = (look_at > SIZE -> SIZE : look_at);
#ifdef LOOKS_TOO_LATE
		look_at = SIZE + QUANTUM + 1;
#endif
		look_at = needed + look_at;
		needed = 0
	}
}

inline write_messages()
{
	do
	:: written < COUNT ->
		/* [I2] after the resets: pairs with herald_inval_read() */
		MESSAGE {
			HALF { ring[(from + written) % SIZE].half[0] = from + written };
			HALF { ring[(from + written) % SIZE].half[1] = from + written; written++ }
		}
	:: else -> written = 0; break
	od
}

/* With the lock held. */
inline herald_inval_insert()
{
	atomic { from = head; look = (from + COUNT >= look_at) };
#ifdef RESET_AFTER_WRITING
	write_messages();
#endif
	if :: look -> look_after_readers() :: else fi;
#ifdef HEAD_BEFORE_MESSAGES
	head = from + COUNT;
#endif
#ifndef RESET_AFTER_WRITING
	write_messages();
#endif
	/* [I1] pairs with herald_inval_read() */
	atomic { head = from + COUNT; from = 0 };
	if :: look -> give_turn() :: else fi;
	look = 0
}

/* invalidate.c */
inline insert()
{
	lock();
	herald_inval_insert();
	unlock();
	wake
}

/* ---- inval_queue.c: join, read, and so on ---- */

/* With the lock held. */
inline join()
{
#ifdef JOIN_UNLOCKED
	seen = head;
	clear_stuck(me);
	atomic { word[me] = WORD(seen, READING); seen = 0 }
#else
	lock();
	clear_stuck(me);
	word[me] = WORD(head, READING);
	unlock()
#endif
}

#define MISSED		255

inline copy_messages()
{
	is_whole = 1;
	do
	:: copied < count ->
		/* [I2] pairs with herald_inval_insert() */
		MESSAGE {
			HALF { is_whole = is_whole && ring[(at + copied) % SIZE].half[0] == at + copied };
			HALF { is_whole = is_whole && ring[(at + copied) % SIZE].half[1] == at + copied; copied++ }
		}
	:: else -> break
	od;
	copied = 0
}

#ifdef MOVES_UNCHECKED
#define CAN_MOVE		true
#else
#define CAN_MOVE		(word[me] == WORD(at, READING))
#endif

/* Sets `count` to the number of messages read, or MISSED. */
inline herald_inval_read()
{
	atomic {
		if
		:: STATE(word[me]) == READING -> at = POSITION(word[me])
		:: else -> count = MISSED
		fi
	};
	if
	:: count == MISSED
	:: else ->
		/* [I1] pairs with herald_inval_insert() */
		d_step { count = head - at; count = (count > READ_QUANTUM -> READ_QUANTUM : count) };
		if
		:: count == 0
		:: else ->
#ifndef MOVE_BEFORE_COPY
			copy_messages();
#endif
			/* [I2] only if not reset meanwhile; [I3] pairs with needed_by() */
			d_step {
				if
				:: CAN_MOVE -> word[me] = WORD(at + count, READING)
				:: else -> count = MISSED
				fi
			};
			if
			:: count == MISSED
			:: else ->
#ifdef MOVE_BEFORE_COPY
				copy_messages();
#endif
				assert(is_whole);
				clear_stuck(me)
			fi;
			is_whole = 0
		fi
	fi;
	at = 0
}

inline herald_inval_caught_up()
{
#ifdef STUCK_BEFORE_TURN
	clear_stuck(me);
#endif
	hand_turn_on();
#ifndef STUCK_BEFORE_TURN
	/* [I5] after the turn was looked at: pairs with herald_inval_rescue() */
	clear_stuck(me)
#endif
}

inline herald_inval_leave()
{
#ifdef LEAVE_LOOKS_FIRST
	atomic { saw[me] = turn; if :: HOLDER(turn) != me + 1 -> saw[me] = 0 :: else fi };
	word[me] = WORD(0, FREE);
	if :: saw[me] != 0 -> take_it_back_and_give_it() :: else fi
#else
	word[me] = WORD(0, FREE);
#ifndef LEAVE_KEEPS_TURN
	hand_turn_on()
#endif
#endif
}

inline herald_inval_rescue()
{
	atomic {
		if
		:: IS_THAT_TURN -> slot = HOLDER(saw[me]) - 1
		:: else -> saw[me] = 0
		fi
	};
	if
	:: saw[me] != 0 ->
#ifndef MARK_AFTER_TAKING
		/* [I5] before the turn is taken: pairs with herald_inval_caught_up() */
		stuck[slot] = 1;
#endif
		d_step {
			moved = IS_THAT_TURN;
			if
			:: moved ->
				assert(is_old);
				turn = TURN(SERIAL(turn), NOBODY);
				is_old = 0;
				was_rescued[slot] = stuck[slot]
			:: else
			fi;
			saw[me] = 0
		};
		if
		:: moved ->
#ifdef MARK_AFTER_TAKING
			stuck[slot] = 1;
#endif
			slot = 0;
			give_turn()
		:: else ->
			atomic { stuck[slot] = 0; slot = 0 };
			moved = 0
		fi
	:: else
	fi
}

/* ---- the processes ---- */

proctype inserter(byte n)
{
	LOCALS;
	byte from, needed, written;
	bit look;
	byte me = INSERTER(n);

	do
	:: atomic { inserts > 0 -> inserts-- }; insert()
	:: inserts == 0 -> break
	od;
end_idle:
	atomic { n == 0 && is_at_rest };
	insert()
}

#ifdef STUCK
#define MAY_STOP		if :: me == READERS - 1 -> goto stopped :: true fi
#else
#define MAY_STOP		skip
#endif

#if LEAVES > 0
#define MAY_LEAVE		if :: atomic { leaves > 0 -> leaves-- }; goto leave :: true fi
#else
#define MAY_LEAVE		skip
#endif

proctype reader(byte me)
{
	LOCALS;
	byte at, count, copied;
	bit is_whole;

end_idle:
	do
	:: atomic { signalled[me] || reads > 0 ->
			if
			:: signalled[me] -> signalled[me] = 0
			:: reads > 0 -> reads--
			fi };
		/* read_on(), of inval_reader.c */
		do
		:: true ->
			MAY_STOP;
			MAY_LEAVE;
			herald_inval_read();
			if
			:: count == 0 -> break
			:: count == MISSED -> count = 0; join()
			:: else -> count = 0
			fi
		od;
		herald_inval_caught_up();
		wake
#if LEAVES > 0
	:: atomic { leaves > 0 -> leaves-- };
leave:	herald_inval_leave();
		wake;
		/* Another backend, with the same slot. */
		if
		:: signalled[me] = 0; join()
		:: break
		fi
#endif
	od;
	goto gone;
stopped:
	is_stopped[me] = 1;
end_stopped:
	false;
gone:
	skip
}

#if RESCUES > 0
/* check_turn() of inval_queue.c, and pass_on() of catch_up.c */
proctype rescuer()
{
	LOCALS;
	byte me = THE_RESCUER;

end_asleep:
	do
	:: atomic { HOLDER(turn) != NOBODY && rescues > 0 && !locked ->
			rescues--; locked = 1; saw[me] = turn; is_old = 1 };
		herald_inval_rescue();
		unlock();
		wake
	od
}
#endif

/* ---- when nothing moves any more ---- */

#define IS_THERE(s, p)	(ring[(p) % SIZE].half[0] == (p) && ring[(p) % SIZE].half[1] == (p))

inline check_reader(s)
{
	assert(!stuck[s] || is_stopped[s] || STATE(word[s]) == FREE);
	assert(HOLDER(turn) != s + 1 || (is_stopped[s] && STATE(word[s]) == READING));
	if
	:: STATE(word[s]) == READING ->
		assert(POSITION(word[s]) + SIZE >= head);
		at = POSITION(word[s]);
		do
		:: at < head -> assert(IS_THERE(s, at)); at++
		:: else -> at = 0; break
		od
	:: else
	fi
}

#define IS_SERVED(s)	(STATE(word[s]) != READING || is_stopped[s] || POSITION(word[s]) + FAR_BEHIND > head)

init
{
	byte i, at;

	atomic {
		do :: reads < READS -> reads++ :: break od;
		do :: leaves < LEAVES -> leaves++ :: break od;
		do :: rescues < RESCUES -> rescues++ :: break od;
		do
		:: i < READERS -> word[i] = WORD(0, READING); run reader(i); i++
		:: else -> i = 0; break
		od;
		do
		:: i < INSERTERS -> run inserter(i); i++
		:: else -> i = 0; break
		od;
#if RESCUES > 0
		run rescuer()
#endif
	};
	timeout;
	atomic {
		do
		:: i < READERS -> check_reader(i); i++
		:: else -> i = 0; break
		od;
		is_at_rest = 1
	};
	timeout;
	atomic {
		do
		:: i < READERS ->
			check_reader(i);
			assert(IS_SERVED(i) || HOLDER(turn) != NOBODY);
			i++
		:: else -> break
		od
	};
end_checked:
	false
}
