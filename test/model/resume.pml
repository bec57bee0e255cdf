/*
 * resume.pml
 *	  A session that wants to read from an older position: herald_retention_hold() of
 *	  retention.c, herald_wakeup_has_read() of wakeup.c, with the subscriptions of
 *	  src/notify/listener/subscriptions.c, against all that moves meanwhile.
 *
 * Processes: a sender, whose BATCHES batches are each on two channels, and are
 * dispatched in three steps (published, marked, settled); two that make room, one by
 * recycling, one by saving what is needed, and RETAIN segments that nobody needs; and
 * the session. It listens to the first channel all along. At some moment it takes a
 * position, its own or one of herald.read(), then goes on for a while, runs a transaction,
 * and resumes the second channel at that position, or at one that it has had before. KEPT
 * segments may be in files; FAILS writes of what nobody needs fail.
 *
 * Simpler than in C: a batch takes a whole segment, and the ring is two of them. A copy
 * is believed or not in one step: ring.pml and retention.pml have that apart. There is
 * one dispatcher: dispatch.pml. What is marked is woken: wakeup.pml.
 *
 * Checked, always: no batch reaches a channel twice, or after a later one; the session
 * misses something only if it was given up, which the queue says; no segment is saved by a
 * name that is to be deleted. Once nothing can move any more: the first channel has had
 * everything; the second, if the answer was true, everything from the position on, and
 * else everything since the commit.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef BATCHES
#define BATCHES		3
#endif
#ifndef RETAIN
#define RETAIN		0
#endif
#ifndef KEPT
#define KEPT		9
#endif
#ifndef FAILS
#define FAILS		0
#endif

#define RING		2
#define END			(RING + BATCHES)

mtype = { IDLE, PENDING, PROCESSING, AGAIN, BUSY, BUSY_PENDING };

byte head = RING;				/* one lap up */
byte dispatched = RING, settled = RING;
byte tail = RING;
byte lost;
bit border_lock, spill_lock;
byte from = RING, to = RING;	/* HeraldRetention */

mtype state = IDLE;				/* the session's word */
byte position = RING;
bit has_second;					/* the second channel is in the map */
byte start[2];
bit sent;						/* everything */

/* What is known only here, to check by. */
byte next[2];					/* the batch that a channel is to have next, or a later one */
byte expected;					/* from where on the second channel is to have everything */
bit was_overrun;				/* it was below `lost` */
bit told;						/* it has missed something, and was told so */
bit has_resumed;				/* its transaction is over */
byte failures;
byte removed;					/* segments below it were given to be deleted, by name */

#define IS_PENDING	(state != IDLE && state != BUSY)
#define IS_SAVED(p)	((p) < to && (p) >= from)

/* herald_wakeup_needed(): two looks, in this order */
#define HOLDS_BACK	(IS_PENDING && position >= lost)
#define NEEDED		(HOLDS_BACK && position < settled -> position : settled)

/* herald_listener_mark() */
inline mark(batch)
{
	atomic {
		if
		:: state == IDLE && position <= batch -> state = PENDING; position = batch
		:: state == BUSY && position <= batch -> state = BUSY_PENDING; position = batch
		:: state == PROCESSING -> state = AGAIN
		:: else
		fi
	}
}

active proctype sender()
{
	byte batch;

	do
	:: head < END ->
		head < tail + RING;
		batch = head;
		head++;
		dispatched = batch + 1;		/* [W1] published first */
#ifdef SETTLED_FIRST
		settled = batch + 1;
#endif
		mark(batch);
		settled = batch + 1
	:: else -> break
	od;
	sent = 1
}

/* herald_retention_recycle() */
active proctype recycler()
{
	byte needed;

	do
#if RETAIN == 0
	:: !sent && head == tail + RING ->
#ifdef NEEDED_BEFORE_LOCK
		needed = NEEDED;
		atomic { border_lock == 0 -> border_lock = 1 };
#else
		atomic { border_lock == 0 -> border_lock = 1 };		/* [F4] */
		needed = NEEDED;
#endif
		if
		:: needed > tail -> tail = needed
		:: else
		fi;
		border_lock = 0;
		needed = 0
#endif
	:: sent -> break
	od
}

/* What nobody needs, but for the last of it; within the border lock. */
inline delete_below(below)
{
	atomic {
		if
		:: to < tail && below < tail -> below = tail
		:: else
		fi;
		do
		:: from < to && from < below -> from++; removed = from
		:: else -> break
		od;
		if
		:: from >= to -> from = tail; to = tail
		:: else
		fi
	}
}

/* Who is below it may be passed over from now on, even if it goes on at once. */
inline give_up_below(above)
{
	atomic {
		lost = above;
		if
		:: IS_PENDING && position < lost -> was_overrun = 1
		:: else
		fi
	}
}

inline lock_border()
{
	atomic { border_lock == 0 -> border_lock = 1 }
}

/* herald_retention_move() */
active proctype spiller()
{
	byte needed, segment;

	do
	:: !sent && head == tail + RING && settled > tail ->
		/* let_go() */
#ifndef LETS_GO_UNLOCKED
		lock_border();				/* [F4] */
#endif
		needed = NEEDED;
		needed = (needed > from + RETAIN -> needed - RETAIN : (RETAIN > 0 -> from : needed));
#ifndef DELETES_FROM_RING
		if
		:: to > tail && needed > tail -> tail = (needed < to -> needed : to)
		:: else
		fi;
#endif
		delete_below(needed);
#ifndef LETS_GO_UNLOCKED
		border_lock = 0;
#endif
		segment = tail;
		if
		:: head == segment + RING && settled > segment && !IS_SAVED(segment) ->
			needed = NEEDED;
			if
			:: needed <= segment && to - from >= KEPT ->
				/* give_up_below(): what is in files first, else what is not saved */
				if
				:: from < to -> give_up_below(from + 1)
				:: else -> give_up_below(segment + 1)
				fi;
				needed = lost;
				delete_below(needed)
			:: else
			fi;
			needed = NEEDED;
			if
			:: needed <= segment || (RETAIN > 0 && to - from < KEPT && segment >= lost) ->
				if
				:: needed > segment && failures < FAILS -> failures++
				:: atomic { segment == tail && to == tail -> assert(segment >= removed); to = segment + 1 }
				:: atomic { segment != tail || to != tail }
				fi
			:: else
			fi
		:: else
		fi;

		/* recycle(), if nobody else has the lock: then next time */
		if
		:: atomic { border_lock == 0 -> border_lock = 1 };
#ifdef RECYCLES_UNCHECKED
			if
			:: tail == segment -> tail = segment + 1
			:: else
			fi;
#else
			if
			:: tail == segment && (IS_SAVED(segment) || NEEDED > segment) -> tail = segment + 1
			:: else
			fi;
#endif
			border_lock = 0
		:: border_lock == 1
		fi;
		needed = 0;
		segment = 0
	:: sent -> break
	od
}

#define KEPT_FROM_FILES	(from > tail || to < tail -> tail : from)
#define KEPT_FROM		(KEPT_FROM_FILES < lost -> lost : KEPT_FROM_FILES)

inline deliver(channel, batch)
{
	if
	:: start[channel] <= batch ->
		assert(next[channel] <= batch || told);			/* once, and in order */
		if
		:: !told -> assert(next[channel] == batch)		/* and nothing left out */
		:: else
		fi;
		next[channel] = batch + 1
	:: else
	fi
}

/* herald_deliver(): read from the word's position to what is dispatched. */
inline read_all()
{
	atomic { state == PENDING -> state = PROCESSING; at = position };
	end = dispatched;				/* [W1] */
	do
	:: at < end ->
		atomic {
			if
			:: at >= tail || IS_SAVED(at) ->
				deliver(0, at);
				if
				:: has_second -> deliver(1, at)
				:: else
				fi;
				at++
			:: else ->
				assert(was_overrun || at < lost);	/* it was given up, and only then */
				told = 1;
				at = dispatched
			fi;
			position = at				/* herald_wakeup_advance() */
		}
	:: else ->
		atomic {
			if
			:: state == PROCESSING -> state = IDLE; position = at; break
			:: else -> state = PROCESSING; position = at
			fi
		};
		end = dispatched
	od;
	at = 0;
	end = 0
}

active proctype session()
{
	byte at, end, token, had_read, hold_at, seen_settled;
	bit is_held;

	start[0] = RING;
	next[0] = RING;
	token = RING;
	do
	:: state == PENDING -> read_all()
	:: state == IDLE && !has_resumed ->
		/* herald.position(), or herald.read(), now and then */
		if
		:: seen_settled = settled;
			atomic { token = (IS_PENDING || position > seen_settled -> position : seen_settled) };
			seen_settled = 0
		:: token = dispatched
		fi
	:: !has_resumed ->
		/* a transaction: herald_wakeup_busy() */
		atomic {
			if
			:: state == IDLE -> state = BUSY
			:: state == PENDING -> state = BUSY_PENDING
			fi
		};

		/* herald_retention_hold() */
#ifndef HOLDS_UNLOCKED
		lock_border();				/* [F4] */
#endif
		if
		:: token >= KEPT_FROM ->
			seen_settled = settled;		/* [W3] */
#ifdef HAS_READ_DISPATCHED
			seen_settled = dispatched;
#endif
			atomic {
				had_read = (IS_PENDING || position > seen_settled -> position : seen_settled);
				hold_at = (token < had_read -> token : had_read);
#ifdef HOLDS_AT_TOKEN
				hold_at = token;
#endif
#ifndef HOLDS_AT_COMMIT
				position = (state == BUSY_PENDING && position < hold_at -> position : hold_at);
				state = BUSY_PENDING;
				was_overrun = was_overrun || position < lost	/* since the look at KEPT_FROM */
#endif
			};
			is_held = 1;
			seen_settled = 0
		:: else
		fi;
#ifndef HOLDS_UNLOCKED
		border_lock = 0;
#endif
#ifndef STARTS_ARE_FORGOTTEN
		/* herald_subscriptions_pass() */
		atomic {
			if
			:: is_held && start[0] < had_read -> start[0] = had_read
			:: else
			fi
		};
#endif

		/* the commit: herald_subscriptions_prepare(), herald_wakeup_rest() */
		has_second = 1;
#ifdef HOLDS_AT_COMMIT
		if
		:: is_held -> atomic { position = (state == BUSY_PENDING && position < hold_at -> position : hold_at); state = BUSY_PENDING }
		:: else
		fi;
#endif
		start[1] = (is_held -> token : dispatched);		/* [W1] */
		next[1] = start[1];
		expected = start[1];
		atomic {
			if
			:: state == BUSY -> state = IDLE
			:: state == BUSY_PENDING -> state = PENDING
			fi;
			has_resumed = 1
		};
		had_read = 0;
		hold_at = 0;
		token = 0;
		is_held = 0
	:: sent && has_resumed && state == IDLE -> break
	od;
	assert(told || (next[0] == END && next[1] == END))
}
