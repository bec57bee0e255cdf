/*
 * ring.pml
 *	  Reuse of the ring's memory: src/core/queue.c (reserve, recycle), scan() and
 *	  mark() of sequencer.c, herald_wakeup_needed() of wakeup.c,
 *	  herald_queue_copy() of queue_reader.c, and segment_databases.c.
 *
 * Processes: SENDERS, each with BATCHES batches of one word (a header) or two;
 * a listener that pins its position; with STRAGGLER, a reader that recycling does
 * not wait for, as if its pin had been given up. The second word of a batch is the
 * user's payload, written to look like the header of a COMMITTED batch at the same
 * place one lap later.
 *
 * Batches of one word are of the listener's database, those of two words are not;
 * the listener passes over segments without batches of one word. (Here no later
 * segment takes over the word in which that is noted.)
 *
 * The ring is two segments of two words, so that it is used again and again,
 * and a batch of two words never begins in the middle of a segment (filler).
 *
 * A step is one access to shared memory, with what is local to the process
 * around it: sequential consistency. In C the accesses to the ring, its tail
 * and its limit are acquire, release and relaxed ones [L1] [L2] [L3]; the
 * reorderings that those allow are not checked here (test/stress does, with
 * ThreadSanitizer). Dispatchers wait for their lock (dispatch.pml has the
 * try-lock), and a listener's transitions are single steps, as wakeup.pml
 * allows.
 *
 * Checked: a sender finds zeros where it writes; a dispatcher takes a batch for
 * finished only if its sender has finished it, and finds its run unchanged when
 * it marks; a listener is never lapped; a copy that a reader accepts is what was
 * sent; segments that the listener passes over have nothing of its database
 * [L7]; once no process can move any more, the listener has read everything.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: 3 million states; with a straggler and one sender 1 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef SENDERS
#define SENDERS		2
#endif
#ifndef BATCHES
#define BATCHES		2
#endif

#define SEGMENT		2
#define RING		4
#define END			24			/* more than all batches take */

#define RESERVED	1
#define COMMITTED	2
#define FILLER		4
#define WORD(p, s)			((p) * 8 + (s))
#define STATE(w)			((w) % 8)
#define NEXT_SEGMENT(at)	(((at) / SEGMENT + 1) * SEGMENT)
#define AT(p)				ring[(p) % RING]

mtype = { IDLE, PENDING, PROCESSING, AGAIN };

byte ring[RING];
byte head = RING;				/* one lap up */
byte tail = RING;
byte limit = RING + RING;
bit spill_lock;
byte dispatched = RING;
byte settled = RING;
bit dispatching;
bit noted[END / SEGMENT];		/* does the segment have a batch of the listener's database? */
mtype state = IDLE;				/* the listener's word */
byte position = RING;

/* Only in the model, for the checks. */
byte sent[END];					/* what was written at each position, or PAYLOAD */
#define PAYLOAD		7
#define FORGED(p)	WORD((p) + RING, COMMITTED)
#define SENT(p)		(sent[p] == PAYLOAD -> FORGED(p) : sent[p])
byte read_to = RING;

#define IS_PENDING	(state != IDLE)

/* ---- wakeup.c: herald_wakeup_needed() ---- */

inline look_at_word()
{
#ifdef NOT_PINNED
	skip
#else
	needed = (IS_PENDING && position < needed -> position : needed)		/* [L6] */
#endif
}

inline herald_wakeup_needed()
{
#ifdef WORD_BEFORE_SETTLED
	needed = END;
	look_at_word();
	needed = (settled < needed -> settled : needed)
#else
	needed = settled;			/* [L5] */
	look_at_word()
#endif
}

/* ---- queue.c ---- */

inline zero()
{
	at = old_tail;
	do
	:: atomic { at < needed -> AT(at) = 0; at++ }
	:: else -> break
	od;
	at = 0
}

inline herald_queue_recycle()
{
	needed = needed / SEGMENT * SEGMENT;
	old_tail = tail;
	if
	:: needed > old_tail ->
#if defined(TAIL_AFTER_ZERO)
		zero();
		tail = needed;
		limit = needed + RING
#elif defined(LIMIT_BEFORE_ZERO)
		tail = needed;
		limit = needed + RING;
		zero()
#elif defined(NO_ZERO)
		tail = needed;
		limit = needed + RING
#else
		tail = needed;			/* [L3] */
		zero();
		limit = needed + RING	/* [L1] */
#endif
	:: else
	fi;
	atomic { needed = 0; old_tail = 0 }
}

/* Recycles what the listener has read; retention.pml has the rest. */
inline herald_spill_make_room()
{
#ifndef NO_LOCK
	atomic { !spill_lock -> spill_lock = 1 };
#endif
	herald_wakeup_needed();
	herald_queue_recycle();
	spill_lock = 0
}

inline herald_queue_reserve()
{
	seen = head;
	do
	:: true ->
		start = (seen + size <= NEXT_SEGMENT(seen) -> seen : NEXT_SEGMENT(seen));
		if
		:: start + size > limit ->			/* [L1] */
			start = 0;
			herald_spill_make_room();
			seen = head
		:: start + size <= limit ->
			d_step {						/* [L2] */
				found = (head == seen);
				if
				:: found -> head = start + size
				:: else -> seen = head
				fi
			};
			if :: found -> found = 0; break :: else fi
		fi
	od;
	if
	:: start != seen -> d_step {
		assert(AT(seen) == 0);
		AT(seen) = WORD(seen, FILLER);
		sent[seen] = WORD(seen, FILLER) }
	:: else
	fi;
	d_step { assert(AT(start) == 0); AT(start) = WORD(start, RESERVED) }
}

inline finish()
{
	d_step {
		assert(AT(start) == WORD(start, RESERVED));
		sent[start] = WORD(start, COMMITTED);
		AT(start) = WORD(start, COMMITTED)
	}
}

/* ---- sequencer.c ---- */

#define IS_OURS(p)	(sent[p] == WORD(p, COMMITTED) && sent[(p) + 1] != PAYLOAD)
#ifdef NOTE_AFTER_PUBLISHING
#define NOTE(p)		skip
#define NOTE_LATE(p)	noted[(p) / SEGMENT] = noted[(p) / SEGMENT] || IS_OURS(p)
#else
#define NOTE(p)		noted[(p) / SEGMENT] = noted[(p) / SEGMENT] || IS_OURS(p)
#define NOTE_LATE(p)	skip
#endif

inline scan()
{
	atomic { at = from; seen = head };			/* [L2] */
	do
	:: atomic { at < seen ->
		if
		:: AT(at) == WORD(at, FILLER) -> at = NEXT_SEGMENT(at)
		:: AT(at) == WORD(at, COMMITTED) ->
			assert(sent[at] == WORD(at, COMMITTED));		/* by its sender, not by a payload */
			NOTE(at);										/* [L7] */
			at = at + (sent[at + 1] == PAYLOAD -> 2 : 1)		/* header->length */
		:: AT(at) == 0 || AT(at) == WORD(at, RESERVED) -> break
		:: else -> assert(false)							/* damaged */
		fi }
	:: else -> break
	od;
	seen = 0
}

inline mark()
{
	do
	:: from < at ->
		if
		:: AT(from) == WORD(from, FILLER) -> from = NEXT_SEGMENT(from)
		:: AT(from) == WORD(from, COMMITTED) ->
			/* herald_listener_mark() */
			atomic {
				NOTE_LATE(from);
				if
				:: state == IDLE && position <= from -> state = PENDING; position = from
				:: state == PROCESSING -> state = AGAIN
				:: else
				fi
			};
			from = from + (sent[from + 1] == PAYLOAD -> 2 : 1)
		:: AT(from) != WORD(from, FILLER) && AT(from) != WORD(from, COMMITTED) ->
			assert(false)									/* recycled while we mark it */
		fi
	:: else -> break
	od
}

inline herald_sequencer_run()
{
	atomic { !dispatching -> dispatching = 1; from = dispatched };
	scan();
	if
	:: at > from ->
		dispatched = at;					/* [W1] */
#ifdef SETTLED_BEFORE_MARK
		settled = at;
		mark()
#else
		mark();
		settled = at						/* [L5] */
#endif
	:: else
	fi;
	atomic { dispatching = 0; from = 0; at = 0 }
}

/* ---- the processes ---- */

proctype sender()
{
	byte n, size, seen, start, needed, old_tail, at, from;
	bit found;

	do
	:: n < BATCHES ->
		n++;
		if :: size = 1 :: size = 2 fi;
		herald_queue_reserve();
		/* herald_queue_fill() */
		if
		:: size == 2 -> d_step {
			assert(AT(start + 1) == 0);
			AT(start + 1) = FORGED(start + 1);
			sent[start + 1] = PAYLOAD }
		:: else
		fi;
		finish();
		atomic { seen = 0; start = 0; size = 0 };
		herald_sequencer_run()
	:: else -> break
	od
}

proctype listener()
{
	byte at, to, word;

end_idle:
	do
	:: atomic { state == PENDING -> state = PROCESSING; at = position };
		assert(at == read_to || at > read_to);
		to = dispatched;
		do
		:: true ->
			do
			:: at < to ->
				if
				:: atomic { !noted[at / SEGMENT] ->			/* [L7] */
					do
					:: assert(!IS_OURS(at)); at++;
						if :: at == to || at % SEGMENT == 0 -> break :: else fi
					od }
				:: noted[at / SEGMENT] ->
					/* herald_queue_copy() */
					word = AT(at);
					atomic { assert(at >= tail); assert(word == SENT(at)); word = 0; at++ }
				fi;
				if
				:: at % SEGMENT == 0 -> position = at			/* herald_listener_advance() */
				:: else
				fi
			:: else -> break
			od;
			/* herald_listener_finish() */
			atomic {
				position = to;
				read_to = to;
				if
				:: state == PROCESSING -> state = IDLE; break
				:: else -> state = PROCESSING
				fi
			};
			to = dispatched
		od;
		atomic { at = 0; to = 0 }
	od
}

#ifdef STRAGGLER
/* Copies the rest of a segment, and accepts the copy if the tail is not past it. */
proctype straggler()
{
	byte from, to, first, second, end_of_copy;

	atomic { dispatched > RING -> from = RING; to = dispatched };
	do
	:: from + 1 < to -> from++
	:: break
	od;
	end_of_copy = (to < NEXT_SEGMENT(from) -> to : NEXT_SEGMENT(from));
#ifdef CHECK_BEFORE_COPY
	if
	:: from >= tail -> first = AT(from)
	:: from < tail -> goto lapped
	fi;
	if :: from + 1 < end_of_copy -> second = AT(from + 1) :: else fi;
#else
	first = AT(from);
	if :: from + 1 < end_of_copy -> second = AT(from + 1) :: else fi;
	if
	:: from >= tail
	:: from < tail -> goto lapped
	fi;
#endif
	assert(first == SENT(from));
	assert(from + 1 >= end_of_copy || second == SENT(from + 1));
lapped:
	skip
}
#endif

init
{
	byte i;

	atomic {
		do
		:: i < SENDERS -> run sender(); i++
		:: else -> break
		od;
		run listener();
#ifdef STRAGGLER
		run straggler()
#endif
	};
	timeout;
	assert(dispatched == head && settled == head && state == IDLE);
end_checked:
	false
}
