/*
 * resume.pml
 *	  A session that wants to read from an older position: herald_retention_hold() of
 *	  retention.c, herald_wakeup_has_read() of wakeup.c, with the subscriptions of
 *	  src/notify/listener/subscriptions.c, while batches are sent, saved, recycled and
 *	  deleted.
 *
 * Processes: a sender, whose BATCHES batches are each on two channels, and are
 * dispatched in three steps (published, marked, settled); a spiller, which deletes at any time
 * what is not needed, and makes room by saving segments that are needed, and RETAIN segments
 * that are not; and the session. It listens to the first channel all the time. At some moment
 * it takes a position, its own or that of herald.read(), then goes on for a while, runs a
 * transaction, and resumes the second channel at that position, or at an earlier one it has
 * had. KEPT segments may be in files; FAILS writes of segments that are not needed fail.
 *
 * All that spillers do is done under spill_lock, so one process stands for all of them, whether
 * they are senders or the housekeeper.
 *
 * Simpler than in C: a batch takes a whole segment, and the ring is two segments. A copy is
 * made and checked in one step (ring.pml and retention.pml separate the two). There is one
 * dispatcher (dispatch.pml has several). A marked listener is woken (wakeup.pml checks that).
 *
 * Checked, always: no batch is delivered on a channel twice, or after a later one; the
 * session misses a batch only if that was given up, which the queue reports; no segment is
 * saved under a name that is to be deleted. Once no process can move any more: all batches
 * were delivered on the first channel; on the second all from the position on if the hold
 * succeeded, else all since the commit.
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
bit spill_lock;
byte from = RING, to = RING;	/* HeraldRetention */

mtype state = IDLE;				/* the session's word */
byte position = RING;
bit has_second;					/* the second channel is in the map */
byte start[2];
bit sent;						/* all batches are sent */

/* Only in the model, for the checks. */
byte next[2];					/* a channel's next batch; a later one if some were missed */
bit was_overrun;				/* it was below `lost` */
bit has_missed;					/* some batches, and was notified of that */
bit has_resumed;				/* its transaction is over */
byte failures;
byte removed;					/* segments below it are to be deleted, by name */

#define IS_PENDING	(state != IDLE && state != BUSY)
#define IS_SAVED(p)	((p) < to && (p) >= from)

/* herald_wakeup_needed() */
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

/* Deletes saved segments that end at or before `below`. */
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

/* A session below `above` may be passed over from now on, even if it moves on at once. */
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

#define LOCK	atomic { !spill_lock -> spill_lock = 1 }
#define UNLOCK	spill_lock = 0

/* herald_retention_move(), herald_retention_leave_room() */
active proctype spiller()
{
	byte needed, segment;

	do
	:: !sent ->
#if !defined(NEEDED_BEFORE_LOCK) && !defined(DELETES_UNLOCKED)
		LOCK;						/* [F4] */
#endif
		needed = NEEDED;
#ifdef NEEDED_BEFORE_LOCK
		LOCK;
#endif
		/* delete_unneeded() */
		if
		:: needed = (needed > from + RETAIN -> needed - RETAIN : (RETAIN > 0 -> from : needed))
		:: RETAIN > 0
		fi;
		delete_below(needed);
#ifdef DELETES_UNLOCKED
		LOCK;
#endif
		segment = tail;
		if
		:: head == segment + RING && settled > segment ->
			needed = NEEDED;
			if
			:: needed <= segment && to - from >= KEPT ->
				/* give_up_below(): segments in files first, else the one that is not saved */
				if
				:: from < to -> give_up_below(from + 1)
				:: else -> give_up_below(segment + 1)
				fi;
				needed = (lost > segment -> lost : needed);
				delete_below(lost)
			:: else
			fi;
			if
			:: needed <= segment || (RETAIN > 0 && to - from < KEPT && segment >= lost) ->
				if
				:: needed > segment && failures < FAILS -> failures++; removed = segment + 1
				:: atomic { assert(to == segment && segment >= removed); to = segment + 1 }
				fi
			:: else
			fi;
			tail = segment + 1
		:: else
		fi;
		UNLOCK;
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
		assert(next[channel] <= batch || has_missed);			/* once, and in order */
		if
		:: !has_missed -> assert(next[channel] == batch)		/* and nothing left out */
		:: else
		fi;
		next[channel] = batch + 1
	:: else
	fi
}

/* herald_deliver(): reads from the word's position to `dispatched`. */
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
				assert(was_overrun || at < lost);	/* only if it was given up */
				has_missed = 1;
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
		/* now and then, the position of herald.position() or herald.read() */
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
		LOCK;						/* [F4] */
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
				state = BUSY_PENDING
#endif
			};
			is_held = 1;
			seen_settled = 0
		:: else
		fi;
#ifndef HOLDS_UNLOCKED
		UNLOCK;
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
	assert(has_missed || (next[0] == END && next[1] == END))
}
