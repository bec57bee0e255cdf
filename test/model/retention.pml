/*
 * retention.pml
 *	  The queue beyond memory: src/core/retention.c with
 *	  herald_queue_recycle() of queue.c, herald_wakeup_needed() of wakeup.c, the
 *	  listener that reads from memory or else from a file (copy_from_queue() of
 *	  queue_reader.c, src/notify/storage/spill.c), and the files of large transactions
 *	  (src/core/large_table.c).
 *
 * Processes: SENDERS, each with BATCHES transactions, and LARGE more, with one
 * large transaction each, which commits or fails; each sender makes room by itself.
 * LISTENERS, which read at any time, and so fall behind by any distance.
 * A housekeeper that trims TRIMS times. KEPT segments may be in files, counting
 * each large file as one; FAILS writes fail. With DIES, a spiller may once get an
 * error before it has written: its transaction is aborted, which releases the
 * lock, and this or another process starts again.
 *
 * Files are deleted one after the other, when the spiller has released its lock.
 * If saving fails, the spiller comes back for another attempt after that.
 *
 * A large transaction's file is counted in one step, without the lock if there is
 * room, else under it; if there is no room even then, the transaction fails.
 *
 * A step is one access to shared memory, with what is local to the process
 * around it: sequential consistency. A change of what only the spiller's lock
 * protects (the table of large files) is one step.
 *
 * Simpler than in C: a batch takes a whole segment, and the ring is two
 * segments, so that each batch needs memory that was used before; with FULL both are
 * full from the start, and no listener has begun to read. A file is whole, or is being written.
 * Finishing, dispatching and marking are one step, and so are zeroing and moving
 * the limit (ring.pml separates them, dispatch.pml has the try-lock). How a sender waits
 * for room is in admission.pml. A listener's transitions are single steps, as wakeup.pml
 * allows; how it is woken is left out.
 *
 * Checked, always: a copy that a reader accepts is what was sent, from memory as
 * from a file; a listener that is notified of a gap was overrun, and the queue
 * says so; while the lock is free, exactly the segments from `from` to `to` are in
 * files, besides those that are being deleted; the limit is kept, except for one
 * segment if there are large transactions; `lost` never goes back. Once no process
 * can move any more: everything was sent; each listener has read, once and in
 * order, all that it was marked for, or was notified of the gap; and when the last
 * listener has done so, no file is left.
 *
 * Must fail: the variants of the table in `run`.
 *
 * Size: 0.1 to 2 million states.
 *
 * Copyright (c) 2026, the pg_herald contributors
 */
#ifndef SENDERS
#define SENDERS		2
#endif
#ifndef BATCHES
#define BATCHES		2
#endif
#ifndef LISTENERS
#define LISTENERS	1
#endif
#ifndef LARGE
#define LARGE		0			/* 2 at the most */
#endif
#ifndef KEPT
#define KEPT		1
#endif
#ifndef FAILS
#define FAILS		0
#endif
#ifndef TRIMS
#define TRIMS		0
#endif

#define RING		2
#define NONE		255
#define AT(p)		ring[(p) % RING]
#define BIT(p)		(1 << (p))
#define BITS(from, to)	((1 << (to)) - (1 << (from)))

mtype = { IDLE, PENDING, PROCESSING, AGAIN };

byte ring[RING];				/* 0, or the position of the batch there */
byte head = RING;				/* one lap up */
byte tail = RING;
byte limit = RING + RING;
byte lost;
byte settled = RING;			/* `dispatched` as well */

bit spill_lock;
byte from, to;					/* HeraldRetention */
short files, whole;				/* the files that exist, and that are complete */
short doomed;					/* files to be deleted, by any process */

mtype state[LISTENERS] = IDLE;	/* the listeners' words */
byte position[LISTENERS] = RING;

#if LARGE > 0
short large_files;				/* by the position of the reference */
byte reference[LARGE] = NONE;	/* the table: the position in the queue */
bit is_entered[LARGE], is_complete[LARGE];
bit doomed_large;				/* some large files are to be deleted */
#define SET_DOOMED_LARGE(value)	doomed_large = value
short large_given_up;			/* for the checks: by the position of the reference */
#define IS_GIVEN_UP(p)	(large_given_up & BIT(p))
#define LARGE_BYTES		(is_complete[0] + (LARGE > 1 && is_complete[LARGE - 1]))
#else
#define SET_DOOMED_LARGE(value)	skip
#define IS_GIVEN_UP(p)	0
#define LARGE_BYTES		0
#endif

/* Only in the model, for the checks. */
short finished;					/* a bit per batch */
short aborted;
short references;
short due[LISTENERS];			/* batches marked for the listener */
short got[LISTENERS], missed[LISTENERS];
bit is_reported[LISTENERS];		/* the queue says that it was overrun */
byte excused[LISTENERS];		/* below this it may be lapped, as it was overrun */
byte failures;
bit has_died;
byte done;						/* senders that have ended */

#define IS_PENDING(l)	(state[l] != IDLE)

/* ---- wakeup.c: herald_wakeup_needed() ---- */

inline look_at_word(l)
{
	if
	:: atomic { IS_PENDING(l) && position[l] < needed && position[l] >= lost -> needed = position[l] }
	:: else fi
}

inline herald_wakeup_needed()
{
	needed = settled;			/* [L5] */
	look_at_word(0);			/* [L6] */
#if LISTENERS > 1
	look_at_word(1);
#endif
}

/* ---- queue.c ---- */

inline herald_queue_recycle(up_to)
{
	atomic {
		if
		:: up_to > tail -> at = tail; tail = up_to		/* [F1] */
		:: else fi
	};
	/* zero() */
	d_step {
		do
		:: at != 0 && at < up_to -> AT(at) = 0; at++
		:: else -> break
		od;
		at = 0;
		limit = tail + RING
	}
}

/* ---- retention.c, under the spiller's lock ---- */

#define IS_SAVED(p)		((p) < to && (p) >= from)
#define BYTES_KEPT		((to > from -> to - from : 0) + LARGE_BYTES)

/* Has a segment's file deleted later, by name, whether there is one or not. */
#define remove(p)		doomed = doomed | BIT(p)

/* Is a removed file not deleted yet? */
#if LARGE > 0
#define REMOVING		(doomed != 0 || doomed_large)
#else
#define REMOVING		(doomed != 0)
#endif

/* Without the lock; by any process, or left to another one. */
inline delete_doomed()
{
	if
	:: atomic { REMOVING -> files = files & ~doomed; doomed = 0; SET_DOOMED_LARGE(0) }
	:: true
	fi
}

inline forget_large(i)
{
	large_files = large_files & ~BIT(reference[i]);
	reference[i] = NONE;
	is_entered[i] = 0;
	is_complete[i] = 0;
	SET_DOOMED_LARGE(1)
}

/* herald_large_table_remove_below() */
inline remove_large(below)
{
#if LARGE > 0
	d_step {
		if :: reference[0] < below -> forget_large(0) :: else fi;
		if :: LARGE > 1 && reference[LARGE - 1] < below -> forget_large(LARGE - 1) :: else fi
	}
#else
	skip
#endif
}

/* Deletes the files below `below`. */
inline delete_below()
{
	seen = tail;
	/* What was recycled without being saved was not needed, so nothing before it is. */
	if
#ifdef BELOW_GOES_BACK
	:: to < seen -> below = seen
#else
	:: to < seen && below < seen -> below = seen
#endif
	:: else fi;
	do
#ifdef ONE_TOO_MANY
	:: atomic { from < to && from <= below -> from++; remove(from - 1) }
#else
	:: atomic { from < to && from < below -> from++; remove(from - 1) }
#endif
	:: else -> break
	od;
	if
	:: from >= to -> from = seen; to = seen
	:: else fi;
	seen = 0;
	remove_large(below);
	below = 0
}

/* Deletes files that no listener needs. */
inline delete_unneeded()
{
	herald_wakeup_needed();
	atomic { below = needed; needed = 0 };
	delete_below()
}

inline report_overrun(l)
{
	if
	:: atomic { IS_PENDING(l) && position[l] >= lost && position[l] < given_up ->
		is_reported[l] = 1 }
	:: else fi
}

inline report_overruns()
{
	report_overrun(0)
#if LISTENERS > 1
	; report_overrun(1)
#endif
}

/* Gives up everything below `given_up`. */
inline give_up_below()
{
#ifdef DELETES_FIRST
	below = given_up;
	delete_below();
#endif
#ifndef NOT_REPORTED
	report_overruns();
#endif
#ifndef LOST_STAYS
	atomic { assert(given_up > lost); lost = given_up };
#endif
	atomic { below = given_up; given_up = 0 };
	delete_below()
}

/* Gives up a large transaction's file; a listener notices when it gets to the reference. */
inline give_up_large()
{
#if LARGE > 0
	atomic {
		large_given_up = large_given_up | BIT(given_up);
		below = given_up + 1;
		given_up = 0
	};
	remove_large(below);
	below = 0
#else
	skip
#endif
}

/* Clears `found` if there is nothing to give up. */
inline give_up_oldest()
{
	atomic {
		given_up = (to > from -> from : NONE);
#if LARGE > 0
#ifdef GIVES_UP_UNSETTLED
#define CAN_GO(i)	true
#else
#define CAN_GO(i)	(reference[i] < settled)
#endif
		if
		:: CAN_GO(0) && reference[0] < given_up -> given_up = reference[0]
		:: else fi;
		if
		:: LARGE > 1 && CAN_GO(LARGE - 1) && reference[LARGE - 1] < given_up ->
			given_up = reference[LARGE - 1]
		:: else fi;
#endif
		found = (given_up != NONE);
		given_up = (found -> given_up : 0)
	};
	if
	:: found && to > from && given_up == from -> given_up++; give_up_below()
	:: found && !(to > from && given_up == from) -> give_up_large()
	:: else fi
}

/* Clears `found` if the limit cannot be kept. */
inline keep_within_limit()
{
	found = 1;
	do
	:: found && BYTES_KEPT + 1 > KEPT -> give_up_oldest()
	:: else -> break
	od
}

#define CHECK_FILES \
	assert((files & ~doomed) == (from < to -> BITS(from, to) : 0) && \
		(whole & BITS(from, to)) == BITS(from, to))

#ifdef DIES
/* An error, out of memory for example: the transaction is aborted. */
#define MAY_DIE \
	if \
	:: atomic { !has_died -> has_died = 1; segment = 0 }; \
		LET_GO; \
		goto again \
	:: true \
	fi
#ifdef KEEPS_LOCK
#define LET_GO	goto over
#else
#define LET_GO	atomic { CHECK_FILES; spill_lock = 0 }
#endif
#else
#define MAY_DIE	skip
#endif

/* Clears `found` if saving failed. */
inline save()
{
	MAY_DIE;
	/* write_segment(), which reads the ring between these two steps */
	atomic { files = files | BIT(segment); whole = whole & ~BIT(segment) };
	if
	:: atomic { true -> assert(AT(segment) == segment); whole = whole | BIT(segment); found = 1 }
	:: atomic { failures < FAILS -> failures++; found = 0; files = files & ~BIT(segment) }
	fi;
#ifndef RECYCLED_FIRST
	if
	:: atomic { found ->
		to = segment + 1;			/* [F1] */
		assert(BYTES_KEPT <= KEPT + (LARGE > 0)) }
	:: else fi
#endif
}

/* herald_retention_can_move() */
#define CAN_MOVE	(head == limit && settled > tail)

inline herald_retention_move()
{
	segment = tail;
	delete_unneeded();
	if
	:: CAN_MOVE ->
		herald_wakeup_needed();
		atomic { is_needed = (needed <= segment); needed = 0 };
		if
		:: is_needed ->
			keep_within_limit();
			if
			:: found -> found = 0
			:: else -> given_up = segment + 1; give_up_below(); is_needed = 0
			fi
		:: else fi;
		if
		:: is_needed ->
			is_needed = 0;
			save();
			if
			:: found -> found = 0
			:: else ->
#ifdef DOOMED_TOO_EARLY
				remove(segment);
#endif
				is_again = REMOVING;
				if
				:: is_again
				:: else -> give_up_oldest(); atomic { is_again = found; found = 0 }
				fi;
				if
				:: is_again
				:: else -> given_up = segment + 1; give_up_below(); is_left = 1
				fi
			fi
		:: else fi;
		if
		:: is_again -> is_again = 0
		:: else ->
			herald_queue_recycle(segment + 1);
#ifdef RECYCLED_FIRST
			to = segment + 1;
#endif
			if
			:: is_left -> is_left = 0; remove(segment)
			:: else fi
		fi
	:: else fi
}

/* ---- notify/storage/spill.c ---- */

#ifdef NO_LOCK
#define LOCK		skip
#else
#define LOCK		atomic { !spill_lock -> spill_lock = 1 }
#endif
#define UNLOCK		atomic { CHECK_FILES; spill_lock = 0; segment = 0 }

inline herald_spill_make_room()
{
	LOCK;
	herald_retention_move();
	UNLOCK;
	delete_doomed()
}

/* ---- the processes ---- */

#define LOCALS_OF_SPILLER \
	byte needed, seen, below, given_up, segment, at; \
	bit found, is_needed, is_again, is_left

/* Finish, and dispatch what is finished: publish, mark, settle. */
inline mark_for(l)
{
	if
	:: state[l] == IDLE && position[l] <= settled -> state[l] = PENDING; position[l] = settled
	:: state[l] == PROCESSING -> state[l] = AGAIN
	:: else fi;
	due[l] = due[l] | BIT(settled)
}

inline finish()
{
	d_step {
		finished = finished | BIT(start);
		do
		:: finished & BIT(settled) ->
			if
			:: !(aborted & BIT(settled)) ->
				mark_for(0);
#if LISTENERS > 1
				mark_for(1);
#endif
			:: else fi;
			settled++
		:: else -> break
		od
	}
}

inline herald_queue_reserve()
{
	do
	:: atomic { head < limit ->
		start = head;
		head++;
		assert(AT(start) == 0);
		AT(start) = start };
		break
	:: CAN_MOVE -> herald_spill_make_room()
	od
}

proctype sender(byte me)
{
	LOCALS_OF_SPILLER;
	byte n, start;

	do
	:: n < BATCHES ->
		n++;
again:
		herald_queue_reserve();
		finish();
		start = 0
	:: else -> break
	od;
	done++;
over:
	skip
}

#if LARGE > 0
/* One large transaction. */
proctype large_sender(byte me)
{
	LOCALS_OF_SPILLER;
	byte start;

	/* herald_large_writer_create(), herald_large_writer_grow() */
	is_entered[me] = 1;
again:
	if
	:: !is_complete[me] ->
		/* take() */
		seen = (to > from -> to - from : 0);
		if
		:: atomic { seen + LARGE_BYTES < KEPT -> is_complete[me] = 1; seen = 0 }
		:: else ->
			seen = 0;
			LOCK;
			do
			:: !is_complete[me] ->
				/* herald_retention_leave_room() */
				delete_unneeded();
				keep_within_limit();
				if
				:: atomic { found ->
					found = 0;
					is_complete[me] = (BYTES_KEPT < KEPT) }
				:: else -> break
				fi
			:: else -> break
			od;
			UNLOCK;
			delete_doomed()
		fi
	:: else fi;
	assert(BYTES_KEPT <= KEPT + 1);
	if
	:: !is_complete[me] ->
		/* There is no room: it fails. */
		is_entered[me] = 0;
		done++;
		goto over
	:: else fi;
	herald_queue_reserve();
	atomic { references = references | BIT(start); large_files = large_files | BIT(start) };
	/* herald_large_writer_place(), without the lock */
	reference[me] = start;
	if
	:: finish()
	:: aborted = aborted | BIT(start);
#ifdef FORGET_AFTER_FINISH
		finish();
#endif
		/* herald_large_writer_forget(), without the lock; its entry must be there */
		d_step {
			assert(is_entered[me]);
			large_files = large_files & ~BIT(start);
			reference[me] = 0
		};
#ifndef FORGET_AFTER_FINISH
		finish()
#endif
	fi;
	start = 0;
	done++;
over:
	skip
}
#endif

/* Moves a listener's word. While it was below `lost`, a spiller may have seen that nothing is needed. */
inline move_to(to_there)
{
	d_step {
		excused[me] = (position[me] < lost -> settled : excused[me]);
		position[me] = to_there
	}
}

/* ---- queue_reader.c, notify/storage/spill.c: set `found` if the batch is there ---- */

inline herald_queue_copy()
{
	if
	:: p >= tail ->
		word = AT(p);
#ifdef COPY_UNCHECKED
		found = 1
#else
		if :: p >= tail -> found = 1 :: else fi		/* [L3] [F1] */
#endif
	:: else fi
}

inline herald_spill_read()
{
	covered = to;						/* [F1] */
	if
	:: p < covered && p >= from ->
		if
		:: atomic { files & BIT(p) -> assert(whole & BIT(p)); found = 1; word = p }
		:: else							/* deleted just now */
		fi
	:: else fi;
	covered = 0
}

inline copy_from_queue()
{
#ifdef FILE_BEFORE_MEMORY
	herald_spill_read();
	if :: !found -> herald_queue_copy() :: else fi
#else
	herald_queue_copy();
	if :: !found -> herald_spill_read() :: else fi
#endif
}

proctype listener(byte me)
{
	byte p, end, word, covered;
	bit found;

end_idle:
	state[me] == PENDING ->
	atomic { state[me] = PROCESSING; p = position[me] };
	end = settled;						/* dispatched */
	do
	:: p < end ->
		copy_from_queue();
		if
		:: found ->
			atomic { assert(word == p); word = 0; move_to(p) };		/* herald_wakeup_advance() */
#if LARGE > 0
			if
			:: references & BIT(p) & ~aborted -> found = ((large_files & BIT(p)) != 0)
			:: else fi
#endif
		:: else fi;
		if
		:: atomic { found ->
			assert(!(got[me] & BIT(p)));
			got[me] = got[me] | BIT(p);
			p++;
			found = 0 }
		:: else ->
			/*
			 * HERALD_READ_LAPPED: the listener was overrun, and reported as such;
			 * or a large transaction's file is gone, and it reports itself.
			 */
			atomic {
				assert(position[me] < lost || p < excused[me] || IS_GIVEN_UP(p));
				assert(is_reported[me] || IS_GIVEN_UP(p));
				end = settled;
				missed[me] = missed[me] | BITS(p, end);
				p = end
			};
			move_to(end)
		fi
	:: else ->
		/* herald_wakeup_finish() */
		atomic {
			move_to(end);
			if
			:: state[me] == PROCESSING -> state[me] = IDLE; p = 0; end = 0; goto end_idle
			:: else -> state[me] = PROCESSING
			fi
		};
		end = settled
	od
}

proctype housekeeper()
{
	LOCALS_OF_SPILLER;
	byte n;

end_asleep:
	do
	:: n < TRIMS && (from < to || LARGE_BYTES > 0) ->
		n++;
		/* herald_spill_doom_unneeded() */
		LOCK;
		delete_unneeded();
		UNLOCK;
		delete_doomed()
	od
}

#define IS_DONE(l) \
	(state[l] == IDLE && (due[l] & ~(got[l] | missed[l])) == 0 && (got[l] & missed[l]) == 0)

init
{
	LOCALS_OF_SPILLER;
	byte i, start;

	atomic {
#ifdef FULL
		do
		:: head < limit -> start = head; head++; AT(start) = start; finish()
		:: else -> break
		od;
		start = 0;
#endif
#if LARGE > 0
		do
		:: i < LARGE -> run large_sender(i); i++
		:: else -> break
		od;
		i = 0;
#endif
		do
		:: i < SENDERS -> run sender(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < LISTENERS -> run listener(i); i++
		:: else -> break
		od;
		i = 0;
		run housekeeper()
	};
	timeout;
	assert(done == SENDERS + LARGE && settled == head);
	assert(IS_DONE(0));
#if LISTENERS > 1
	assert(IS_DONE(1));
#endif
	/* The housekeeper trims once more. */
#ifndef NOT_TRIMMED
	LOCK;
	delete_unneeded();
	UNLOCK;
	atomic { files = files & ~doomed; doomed = 0 };
#endif
	assert(files == 0 && doomed == 0 && from >= to && LARGE_BYTES == 0);
end_checked:
	false
}
