/*
 * room.pml
 *	  The line of senders that wait for room in the ring [F3], of
 *	  src/notify/storage/room.c and src/notify/sender/publish.c.
 *
 * SENDERS want one unit of room each; a maker makes ROOM units, one at a time,
 * and announces each. A sender that finds none lines up, looks once more, and
 * sleeps. The one that is told may find that others were quicker; it stays in line.
 * It may begin to starve whenever it looks in vain as the first: others leave the room
 * to it then. Timeouts are left out: to be told is enough.
 *
 * LEAVES	 so many times a sender may be interrupted: it gives up its place, and wants no room
 *			 any more.
 *
 * COARSE	 to look for the first in line is one step.
 *
 * A ticket is a number that grows; the real one is a time, and for large batches later, which
 * changes who is first, but not what the first one does. Passing over, a matter of
 * timeouts, is left out: what it does is what its victim does when it leaves.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it: sequential consistency. Taking room is one compare-and-swap.
 *
 * Checked, once nothing can move any more: nobody waits while there is room; and if nobody
 * waits, no place is left, and nobody starves.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */

#ifndef SENDERS
#define SENDERS		3
#endif
#ifndef LEAVES
#define LEAVES		0
#endif
#define ROOM		(SENDERS - LEAVES)	/* for those that stay */
#define NOBODY		SENDERS

byte room;
byte waiting;
byte next_ticket = 1;
byte tickets[SENDERS];			/* 0: none */
byte starving;					/* a ticket */
bit latch[SENDERS];
byte left;
byte done;

/* One place after the other: they change meanwhile. */
inline first_in_line()
{
	i = 0;
	first = NOBODY;
	lowest = 0;
#ifdef COARSE
	atomic {
#endif
	do
	:: i < SENDERS ->
		atomic {
			if
			:: tickets[i] != 0 && (lowest == 0 || tickets[i] < lowest) -> lowest = tickets[i]; first = i
			:: else
			fi;
			i++
		}
	:: else -> break
	od;
#ifdef COARSE
	}
#endif
	i = 0
}

inline announce()
{
	if
	:: waiting > 0 ->
		first_in_line();
		if
		:: first != NOBODY && lowest != mine -> latch[first] = 1
		:: else
		fi;
		first = NOBODY;
		lowest = 0
	:: waiting == 0
	fi
}

inline let_next_go_first()
{
	first_in_line();
	before = mine;
	mine = 0;
	if
	:: first != NOBODY ->
		/* whether it has waited for long */
		if
		:: atomic { starving == before -> starving = lowest };
#ifndef NO_LOOK_AFTER_HANDING_OVER
			if
			:: tickets[first] != lowest ->
				if
				:: atomic { starving == lowest -> starving = 0 }
				:: starving != lowest
				fi
			:: tickets[first] == lowest
			fi
#endif
		:: atomic { starving == before -> starving = 0 }
		:: starving != before
		fi
	:: else ->
		if
		:: atomic { starving == before -> starving = 0 }
		:: starving != before
		fi
	fi;
	before = 0;
	first = NOBODY;
	lowest = 0
}

inline leave()
{
	if
	:: mine != 0 ->
#ifdef NEXT_BEFORE_LEAVING
		let_next_go_first();
		announce();
		atomic { tickets[me] = 0; waiting-- }
#else
		atomic { tickets[me] = 0; waiting-- };
		let_next_go_first();
#ifndef TELL_NOBODY
		announce()
#endif
#endif
	:: else
	fi;
	mine = 0
}

proctype sender(byte me)
{
	byte i, first = NOBODY, lowest, mine, before;

	do
	:: true ->
		/* try_reserve() */
		if
		:: atomic { room > 0 && (starving == 0 || starving == mine) -> room--; done++ };
			leave();
			break
		:: room == 0 || (starving != 0 && starving != mine)
		fi;

		/* herald_room_line_up() */
		if
		:: mine == 0 ->
			atomic { mine = next_ticket; next_ticket++ };
#ifdef SLEEP_AT_ONCE
			atomic { tickets[me] = mine; waiting++; };
			latch[me];
			latch[me] = 0
#else
			waiting++;
			tickets[me] = mine
#endif
		:: else ->
			/* It has slept already, and looked in vain. */
			first_in_line();
			if
			:: lowest == mine -> starving = mine
#ifdef STARVES_BY_TIME_ALONE
			:: true
#else
			:: starving == 0 || starving == mine
#endif
			:: lowest != mine
			fi;
			first = NOBODY;
			lowest = 0;

			/* herald_room_wait(); looked since it was told last */
			if
			:: room > 0 && (starving == 0 || starving == mine)
			:: room == 0 || (starving != 0 && starving != mine) ->
end_asleep:
				latch[me];				/* WaitLatch() */
				latch[me] = 0;			/* ResetLatch() */
				if
				:: atomic { left < LEAVES -> left++ };
					leave();
					break
				:: true
				fi
			fi
		fi
	od
}

proctype maker()
{
	byte made, i, first = NOBODY, lowest, mine;

	do
	:: made < ROOM ->
#ifdef ANNOUNCE_BEFORE_ROOM
		announce();
		room++;
#else
		room++;
		announce();
#endif
		made++
	:: else -> break
	od
}

init
{
	byte i;

	atomic {
		do
		:: i < SENDERS -> run sender(i); i++
		:: else -> break
		od;
		i = 0;
		run maker()
	};
	timeout;
	assert(room == 0 || done + left == SENDERS);
	assert(done + left < SENDERS || (waiting == 0 && starving == 0));
end_checked:
	false
}
