/*
 * dispatch.pml
 *	  From reserving a batch to marking it: src/core/queue.c, sequencer.c, and
 *	  how src/notify/dispatch/dispatch.c and src/notify/listener/subscriptions.c use them.
 *
 * Processes: SENDERS, each with BATCHES batches (with MIXED, of one word or two,
 * committed or aborted); SUBSCRIBERS, which enter the channel map and then read the position
 * where they begin; with WATCHDOG, the watchdog, which continues where a budget ended. With
 * STUCK, one sender may stop for ever between moving the head and finishing its batch.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it. Interleaving such steps is sequential consistency, which is what
 * the code asks for at [D1] and [W1].
 *
 * The queue is endless here and its words are CLEAR at first; ring.pml checks
 * that a word of an older lap is never seen. A segment has SEGMENT words, so
 * that fillers occur. Each word of a batch is an entry for all subscribers; a
 * budget counts entries, and may end in the middle of a batch. wakeup.pml
 * checks what follows a mark.
 *
 * Checked, once no process can move any more: dispatched and settled are at the
 * first batch that is not finished, or at the head; every committed batch has
 * been marked for every subscriber that starts at or before it. Always: one
 * dispatcher at a time; batches are marked in the queue's order, each once;
 * settled <= dispatched <= head.
 *
 * Must fail: the variants of the table in `run`, each a -D that is searched
 * for below.
 *
 * Size: with 3 senders 0.5 million states; with MIXED 45 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef SENDERS
#define SENDERS		3
#endif
#ifndef BATCHES
#define BATCHES		1
#endif
#ifndef SUBSCRIBERS
#define SUBSCRIBERS	0
#endif
#ifndef BUDGET
#define BUDGET		100
#endif
#ifndef SEGMENT
#define SEGMENT		3
#endif
#define WORDS		((SENDERS * BATCHES * 2) * 3 / 2 + SEGMENT)

#define CLEAR		0
#define RESERVED	1
#define COMMITTED	2
#define ABORTED		3
#define FILLER		4

#define NEXT_SEGMENT(at)	(((at) / SEGMENT + 1) * SEGMENT)

byte word[WORDS];				/* a batch's state, where it begins */
byte length[WORDS];
byte head, dispatched, settled;
byte mark_offset;				/* in the batch at settled */
bit dispatching;
bit is_listed[2];				/* in the channel map */
bit latch;						/* the watchdog's */

/* Only in the model, for the checks. */
byte dispatchers;
byte marked_to;
int told[2];					/* entries marked for each subscriber, a bit each */
byte start[2];
bit is_stuck;

/* ---- queue.c ---- */

#ifdef STUCK
#define MAY_BE_STUCK \
	if \
	:: atomic { !is_stuck -> is_stuck = 1 }; goto stuck \
	:: true \
	fi
#else
#define MAY_BE_STUCK	skip
#endif

inline herald_queue_reserve()
{
	seen = head;
	do
	:: atomic { true ->
		start_at = (seen + size <= NEXT_SEGMENT(seen) -> seen : NEXT_SEGMENT(seen));
		d_step {
			swapped = (head == seen);
			if
			:: swapped -> head = start_at + size
			:: else -> seen = head
			fi
		};
		if :: swapped -> break :: else fi }
	od;
	MAY_BE_STUCK;
	if
	:: start_at != seen -> word[seen] = FILLER
	:: else
	fi;
	/* write_header(): the state is written last */
	length[start_at] = size;
	word[start_at] = RESERVED;
	atomic { swapped = 0; seen = 0; size = 0 }
}

/* [D1] */
#ifdef MIXED
#define finish \
	if \
	:: word[start_at] = COMMITTED \
	:: word[start_at] = ABORTED \
	fi
#else
#define finish	word[start_at] = COMMITTED
#endif

/* ---- sequencer.c ---- */

/* Moves `at` to the first batch that is not finished. */
inline scan()
{
	atomic { at = from; head_seen = head };		/* [L2] */
	do
	:: atomic { at < head_seen ->
		/* [D1] */
		if
		:: word[at] == FILLER -> at = NEXT_SEGMENT(at)
		:: word[at] == COMMITTED || word[at] == ABORTED -> at = at + length[at]
		:: else ->
#ifdef OVERTAKES_UNFINISHED
			if
			:: word[at] == RESERVED -> at = at + length[at]
			:: else -> break
			fi
#else
			break
#endif
		fi }
	:: else -> break
	od;
	head_seen = 0
}

/* mark_batch(), and herald_channels_mark() under the partition's lock */
inline mark()
{
	do
	:: atomic { from < at && spent < BUDGET ->
		if
		:: word[from] == COMMITTED ->
			assert(from + mark_offset >= marked_to);
			marked_to = from + mark_offset + 1;
			told[0] = told[0] | (is_listed[0] << (from + mark_offset));
			told[1] = told[1] | (is_listed[1] << (from + mark_offset));
			spent++;
			mark_offset++;
			if
			:: mark_offset == length[from] ->
				from = from + length[from];
				mark_offset = 0
			:: else
			fi
		:: word[from] == FILLER -> from = NEXT_SEGMENT(from)
		:: else -> from = from + length[from]
		fi }
	:: else -> break
	od
}

/* Is the next batch finished?  [D1] */
inline has_finished()
{
	at = dispatched;
	atomic {
		if
		:: at < head -> found = 1
		:: else -> found = 0; at = 0
		fi
	};
	if
	:: atomic { found -> found = (word[at] >= COMMITTED); at = 0 }
	:: else
	fi
}

#define ELSEWHERE	0
#define DONE		1
#define MORE		2

inline herald_sequencer_run()
{
	do
	:: true ->
		/* [D1] pairs with the store below and with finish() in queue.c */
		d_step { found = dispatching; dispatching = 1 };
		if
		:: found -> atomic { result = ELSEWHERE; found = 0; break }
		:: else
		fi;
#ifdef REST_IS_FORGOTTEN
		atomic { from = dispatched; at = dispatched; dispatchers++; assert(dispatchers == 1) };
#else
		atomic { from = settled; at = dispatched; dispatchers++; assert(dispatchers == 1) };
#endif
		do
		:: spent < BUDGET ->
			if
			:: from == at ->
				scan();
				if :: at == from -> break :: else fi;
#ifndef PUBLISH_AFTER_MARK
				/* [W1] pairs with the load after a LISTEN has been entered in the map */
				dispatched = at
#endif
			:: else
			fi;
			mark();
#ifdef PUBLISH_AFTER_MARK
			dispatched = at;
#endif
			atomic { settled = from; assert(settled <= dispatched && dispatched <= head) }
		:: else -> break
		od;
		atomic { rest = (from < at); from = 0; at = 0; dispatchers-- };
#ifdef LAST_LOOK_BEFORE_LETTING_GO
		has_finished();
		dispatching = 0;
#else
		/* [D1] pairs with the exchange above, in a process that tried meanwhile */
		dispatching = 0;
#ifndef NO_LAST_LOOK
		has_finished();
#endif
#endif
		atomic {
#ifdef REST_IS_NOBODYS
			rest = 0;
#endif
			result = (spent >= BUDGET && (found || rest) -> MORE : DONE);
			rest = 0;
			if
			:: spent >= BUDGET || !found -> found = 0; break
			:: else -> found = 0
			fi
		}
	od;
	spent = 0
}

/* ---- dispatch.c ---- */

inline herald_dispatch_run()
{
	do
	:: true ->
		herald_sequencer_run();
#ifdef WATCHDOG
		if :: result == MORE -> latch = 1 :: else fi;	/* herald_wake_watchdog() */
		break
#else
#ifdef MORE_IS_NOBODYS
		break
#else
		if :: result == MORE :: else -> break fi
#endif
#endif
	od;
	result = 0
}

#define LOCALS_OF_DISPATCHER \
	byte from, at, head_seen, spent, result; \
	bit found, rest

/* ---- the processes ---- */

proctype sender()
{
	LOCALS_OF_DISPATCHER;
	byte n, size, seen, start_at;
	bit swapped;

	do
	:: n < BATCHES ->
		n++;
#ifdef MIXED
		if :: size = 1 :: size = 2 fi;
#else
		size = 1;
#endif
		herald_queue_reserve();
		MAY_BE_STUCK;
#ifdef TRY_BEFORE_FINISH
		herald_dispatch_run();
		finish;
		start_at = 0
#else
		finish;
		start_at = 0;
		herald_dispatch_run()
#endif
	:: else -> break
	od;
	goto over;
stuck:
end_stuck:
	false;
over:
	skip
}

/* herald_subscriptions_prepare(), until its commit */
proctype subscriber(byte me)
{
	byte position;

#ifdef START_BEFORE_MAP
	position = dispatched;
	is_listed[me] = 1;
#else
	/* [W1] entered first */
	is_listed[me] = 1;
	/* [W1] after the entries are in the map: pairs with herald_sequencer_run() */
	position = dispatched;
#endif
	start[me] = position
}

#ifdef WATCHDOG
proctype watchdog()
{
	LOCALS_OF_DISPATCHER;

end_asleep:
	do
	:: atomic { latch -> latch = 0 };
		herald_dispatch_run()
	od
}
#endif

/* ---- when nothing moves any more ---- */

/* Every entry of the batch at i is marked for this subscriber. */
#define all_told(who)	(((told[who] >> i) & ((1 << length[i]) - 1)) == ((1 << length[i]) - 1))

init
{
	byte i;

	atomic {
		do
		:: i < SENDERS -> run sender(); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < SUBSCRIBERS -> run subscriber(i); i++
		:: else -> break
		od;
		i = 0;
#ifdef WATCHDOG
		run watchdog()
#endif
	};
	timeout;
	atomic {
		do
		:: i < head && word[i] >= COMMITTED ->
			if
			:: word[i] == COMMITTED && SUBSCRIBERS > 0 ->
				assert(i >= dispatched || i < start[0] || all_told(0));
				assert(SUBSCRIBERS < 2 || i >= dispatched || i < start[1] || all_told(1))
			:: else
			fi;
			i = (word[i] == FILLER -> NEXT_SEGMENT(i) : i + length[i])
		:: else -> break
		od;
		assert(is_stuck || i == head);
		/* A filler is not dispatched if its sender stopped after writing it. */
		assert(dispatched == i || (word[dispatched] == FILLER && NEXT_SEGMENT(dispatched) == i));
		assert(dispatched == i || (word[i] < COMMITTED && is_stuck));
		assert(settled == dispatched);
		assert(!dispatching)
	};
end_checked:
	false
}
