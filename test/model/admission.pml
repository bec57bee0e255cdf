/*
 * admission.pml
 *	  Senders that wait for room in the ring: src/notify/sender/admission.c, with
 *	  herald_publish_reserve() of publish.c, herald_spill_make_room() of
 *	  src/notify/storage/spill.c, and the wait for settled batches [D3] of
 *	  src/notify/dispatch/dispatch.c.
 *
 * Processes: COMMITTERS, each of which finishes a batch that it has reserved before, after any
 * time; with STUCK, the last of them may never do so. SENDERS, which want room for a batch
 * each, and finish it in the same way. They may be interrupted INTERRUPTS times (altogether)
 * while they wait: some of these interrupts are cancel requests. The holder of the lock may
 * write REPORTS messages (altogether) to the server log; each releases the lock, and its
 * holder goes on without it.
 *
 * A step is one access to shared memory, with what is local to the process around it:
 * sequential consistency. The server grants its lock to the first that waits for it.
 *
 * Simpler than in C: a batch takes a whole segment, and the ring is full at first, with the
 * COMMITTERS' batches and finished ones. Reserving is one step (ring.pml has several), and so
 * is dispatching what is finished (dispatch.pml has the try-lock); no segment is saved
 * (retention.pml). The waits for earlier batches of the session, and for large ones, are left
 * out: a timeout ends them. A waiting sender dispatches nothing: those that finish do.
 *
 * Checked, always: no batch is reserved beyond the limit; nothing is recycled that is not
 * settled; of the senders that have queued, the first gets the next room, unless a message has
 * released its lock. Once no process can move any more: each sender has sent, or was canceled,
 * and the lock is free; or a batch is stuck, and fills the ring with those behind it.
 *
 * Must fail: the variants of the table in `run`; waiters.pml has more of them.
 *
 * Size: 0.1 to 1.2 million states; with more interrupts 10 million.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef SENDERS
#define SENDERS		3
#endif
#ifndef INTERRUPTS
#define INTERRUPTS	0
#endif
#ifndef REPORTS
#define REPORTS		0
#endif

#ifndef COMMITTERS
#define COMMITTERS	1
#endif

#define RING		2
#define NONE		255
#define BIT(p)		(1 << (p))

byte head = RING + RING;		/* the ring is full, one lap up */
byte tail = RING;
byte limit = RING + RING;
byte settled = RING;
short finished = BIT(RING + RING) - BIT(RING + COMMITTERS);	/* a bit per batch */
bit spill_lock;
bit room_is_awaited;
chan line = [SENDERS] of { byte };	/* the server's lock: its holder, then those that wait */

byte dispatch_waiters;
bit sleeps[SENDERS];			/* is in the condition variable's queue */

/* Only in the model, for the bounds and checks. */
byte interrupts, reports;
byte done;
bit is_stuck;

#define IS_HOLDER	(line?[eval(me)])

/* ---- dispatch.c ---- */

inline tell_waiters()
{
	/* [D3] after the position has moved */
	if
	:: dispatch_waiters > 0 ->
		/* ConditionVariableBroadcast(), which waiters.pml has in several steps */
		d_step {
			do
			:: i < SENDERS -> sleeps[i] = 0; i++
			:: else -> break
			od;
			i = 0
		}
	:: else
	fi
}

#define settle \
	do \
	:: finished & BIT(settled) -> settled++; settles = 1 \
	:: else -> break \
	od

inline herald_dispatch_run()
{
#ifdef TELL_BEFORE_SETTLED
	if :: finished & BIT(settled) -> tell_waiters() :: else fi;
	d_step { settle; settles = 0 }
#else
	d_step { settle };
	if :: settles -> settles = 0; tell_waiters() :: else fi
#endif
}

/* Sets `is_interrupted`, or returns when everything below `end` is settled. */
inline herald_dispatch_wait_until()
{
#ifndef ANNOUNCE_AFTER_LOOKING
	dispatch_waiters++;						/* [D3] announced before looking */
#endif
	do
	:: true ->
		sleeps[me] = 1;						/* herald_wait_prepare() */
		if
		:: settled >= end -> break
		:: settled < end
		fi;
#ifdef ANNOUNCE_AFTER_LOOKING
		dispatch_waiters++;
#endif
end_asleep:
		if
		:: !sleeps[me]						/* herald_wait_sleep() */
		:: atomic { interrupts < INTERRUPTS -> interrupts++; is_interrupted = 1 }; break
		fi;
#ifdef ANNOUNCE_AFTER_LOOKING
		dispatch_waiters--
#endif
	od;
	sleeps[me] = 0;
#ifndef ANNOUNCE_AFTER_LOOKING
	dispatch_waiters--
#endif
}

/* ---- storage/spill.c, core/queue.c ---- */

/*
 * The end of the oldest segment. While a spiller recycles it, the tail is past it already, but
 * there is no room yet: a sender that waited for the next segment would miss that room.
 */
#ifdef LOOKS_AT_TAIL
#define OLDEST_END	(tail + 1)
#else
#define OLDEST_END	(limit - RING + 1)
#endif

/* herald_retention_can_move() */
#define CAN_MOVE	(head == limit && settled >= OLDEST_END)

/* Under spill_lock. */
inline herald_retention_move()
{
	if
	:: CAN_MOVE -> atomic { tail++; assert(tail <= settled) }; limit++
	:: else
	fi;
	spill_lock = 0
}

inline herald_queue_reserve()
{
	if
	:: atomic { head < limit -> start = head; head++; assert(start < tail + RING) }
	:: head >= limit
	fi
}

/* ---- admission.c ---- */

/* When the sender has room, or is interrupted, or writes a message */
inline unlock()
{
	if
	:: IS_HOLDER ->
		room_is_awaited = 0;
		line?eval(me)
	:: else
	fi
}

inline wait_for_room()
{
	do
	:: true ->
#ifndef LOOKS_FOR_END_LAST
		end = OLDEST_END;					/* first_segment_end() */
#endif
		herald_queue_reserve();
		if
		:: start != NONE -> break
		:: else
		fi;
		room_is_awaited = 1;
		if
		:: CAN_MOVE ->
			atomic { !spill_lock -> spill_lock = 1 };
			herald_retention_move()
		:: !CAN_MOVE
		fi;
		if
		:: head < limit
		:: head >= limit ->
#ifdef LOOKS_FOR_END_LAST
			end = OLDEST_END;
#endif
			herald_dispatch_wait_until();
			if
			:: is_interrupted ->
				/* serve_interrupts() */
				is_interrupted = 0;
#ifdef CANCELED_KEEPS_LOCK
				if
				:: goto over
				:: unlock()
				fi;
#else
				unlock();
				if
				:: goto over
				:: true
				fi;
#endif
#ifndef GOES_ON_UNLOCKED
				if
				:: !has_reported -> goto again
				:: has_reported
				fi
#endif
			:: else
			fi
		fi;
		if
		:: atomic { reports < REPORTS && IS_HOLDER -> reports++; has_reported = 1 };
			unlock()
		:: true
		fi
	od
}

/* LockAcquire() */
inline lock()
{
	line!me;
end_queued:
	if
	:: IS_HOLDER
	:: atomic { interrupts < INTERRUPTS -> interrupts++; line??eval(me) };
		goto over
	fi
}

/* ---- the processes ---- */

/* The commit takes any time; then the batch is finished. */
inline finish()
{
	finished = finished | BIT(start);
	herald_dispatch_run()
}

proctype sender(byte me)
{
	byte start = NONE, end, i;
	bit settles, is_interrupted, has_reported;

	/* herald_publish_reserve(): a ring that is short of room is no reason to wait yet */
	if
	:: CAN_MOVE ->
		if
		:: atomic { !spill_lock -> spill_lock = 1 }; herald_retention_move()
		:: spill_lock
		fi
	:: !CAN_MOVE
	fi;

	/* herald_admission_reserve() */
	if
	:: !room_is_awaited -> herald_queue_reserve()
	:: room_is_awaited
	fi;
	if
	:: start != NONE
	:: else ->
again:
		lock();
		wait_for_room();
		assert(IS_HOLDER || has_reported);
		unlock();
		end = 0
	fi;
	finish();
over:
	done++
}

proctype committer(byte start)
{
	byte i;
	bit settles;

#ifdef STUCK
	if
	:: start == RING + COMMITTERS - 1 -> is_stuck = 1; goto over
	:: true
	fi;
#endif
	finish();
over:
	skip
}

init
{
	byte i;

	atomic {
		do
		:: i < COMMITTERS -> run committer(RING + i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < SENDERS -> run sender(i); i++
		:: else -> break
		od;
		i = 0
	};
	timeout;
	assert(done == SENDERS || (is_stuck && head == limit && settled == tail));
	assert(is_stuck || settled == head);
	assert(done < SENDERS || (empty(line) && dispatch_waiters == 0));
end_checked:
	false
}
